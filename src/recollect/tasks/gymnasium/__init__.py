"""Ours as Gymnasium environments, and environments of others as worlds."""
