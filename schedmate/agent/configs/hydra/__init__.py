"""Hydra composition from its config directory, without importing or running anything."""

from schedmate.agent.configs.hydra.compose import HydraResult, compose_hydra

__all__ = ["HydraResult", "compose_hydra"]
