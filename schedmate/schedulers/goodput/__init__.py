"""How fast an elastic job would train elsewhere: throughput, efficiency, and both as goodput."""

from schedmate.schedulers.goodput.agent import Agent, Limits
from schedmate.schedulers.goodput.throughput import Observation, Throughput, fit

__all__ = ["Agent", "Limits", "Observation", "Throughput", "fit"]
