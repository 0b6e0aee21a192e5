"""Recollect: memory for agents and long streams."""
