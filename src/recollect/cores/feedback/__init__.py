"""Feedback Transformer."""
