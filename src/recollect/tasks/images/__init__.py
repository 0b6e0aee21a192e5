"""Images with one label each, as rows of patches: drawn here (shapes), or read from published files."""
