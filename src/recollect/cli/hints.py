"""What the help says in place of an empty default, which the parser would print as nothing."""

from tyro.conf import arg

EMPTY = arg(help_behavior_hint="(default: empty)")
"""Marks a flag whose default is an empty tuple."""
REQUIRED = arg(help_behavior_hint="(required)")
"""Marks an argument that takes any number of words, of which the command needs one."""
