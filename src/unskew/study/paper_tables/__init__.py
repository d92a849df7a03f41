"""``unskew reproduce``: the paper's tables and figures beside the published numbers."""
