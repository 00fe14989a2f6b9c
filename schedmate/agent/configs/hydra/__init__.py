"""Hydra composition from its config directory, without importing or running anything."""
