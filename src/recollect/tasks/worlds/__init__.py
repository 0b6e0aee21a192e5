"""Worlds, batched in torch."""
