"""A table seen from above, a hand that moves, grips and lets go: what was shown at the start decides what is right."""
