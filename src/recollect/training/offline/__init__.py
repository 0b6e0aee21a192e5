"""Offline reinforcement learning: from recorded episodes of any quality, without a world to act in."""
