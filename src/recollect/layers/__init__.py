"""Blocks without memory of their own."""
