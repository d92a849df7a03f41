"""The base that every package uses: errors, registries, estimators, seeds, progress and files."""
