"""Run directories: checkpoints, metrics, progress, interrupts."""
