"""Scores of trained models and agents, their intervals, and films."""
