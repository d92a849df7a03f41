"""One file per claim of speed or memory. Each prints a table and JSON with ratios taken in one run."""
