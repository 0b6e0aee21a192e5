"""Supervised streams: rows of tokens or vectors with targets at some steps. contract.py has their interface."""
