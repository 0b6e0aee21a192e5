"""Imitation of a teacher: by itself (the trainer ``cloning``), or before and during reinforcement (in IMPALA)."""
