"""Learning from a teacher: alone (the trainer ``cloning``), or before and beside reinforcement (in IMPALA)."""
