"""Temporal latent bottleneck."""
