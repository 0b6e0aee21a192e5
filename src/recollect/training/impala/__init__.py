"""IMPALA: actors, learner, V-trace."""
