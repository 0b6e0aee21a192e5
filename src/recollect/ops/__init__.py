"""Hand-written kernels, each beside its plain twin."""
