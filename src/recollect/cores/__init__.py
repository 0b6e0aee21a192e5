"""The memory cores: one paper, one file."""
