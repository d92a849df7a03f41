"""What every package uses: errors, registries, estimators, seeds, progress and files."""
