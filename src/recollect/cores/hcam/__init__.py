"""Hierarchical chunk memory."""
