"""Long-short Transformer."""
