"""Tasks of a robot hand on a table, in which something shown at the start determines the right action."""
