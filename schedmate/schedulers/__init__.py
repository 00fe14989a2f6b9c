"""Scheduler cores: the cluster model, policies, and the simulator that runs them."""

from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import Allocation, Cluster, Forecast, Job, Node
from schedmate.schedulers.policy import (
    Decision,
    Evict,
    Migrate,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
    View,
)

__all__ = [
    "Allocation",
    "Cluster",
    "Decision",
    "Estimator",
    "Evict",
    "Forecast",
    "Job",
    "Migrate",
    "Node",
    "Pack",
    "Policy",
    "Preempt",
    "Profile",
    "Resize",
    "Start",
    "View",
]
