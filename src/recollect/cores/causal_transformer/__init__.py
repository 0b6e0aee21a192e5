"""A Transformer with a sliding window."""
