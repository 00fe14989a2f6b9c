"""Pollux (OSDI'21): elastic jobs by goodput, blind to GPU types."""

from schedmate.schedulers.policies.pollux.policy import Pollux

__all__ = ["Pollux"]
