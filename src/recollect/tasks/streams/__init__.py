"""Supervised streams: rows of tokens or vectors, and questions about them. Begin with contract.py."""
