"""Token Turing machine."""
