"""The paper: its tables and figures beside the published numbers, and what its code did."""
