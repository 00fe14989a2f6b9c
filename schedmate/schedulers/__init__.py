"""Scheduler cores: the cluster model, policies, and the simulator that runs them."""

from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import Allocation, Cluster, Forecast, Job, Node
from schedmate.schedulers.policy import (
    Answer,
    Borrow,
    Decision,
    Drop,
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
from schedmate.schedulers.terms import Capabilities, Constraints, NodeNews, Terms

__all__ = [
    "Allocation",
    "Answer",
    "Borrow",
    "Capabilities",
    "Cluster",
    "Constraints",
    "Decision",
    "Drop",
    "Estimator",
    "Evict",
    "Forecast",
    "Job",
    "Migrate",
    "Node",
    "NodeNews",
    "Pack",
    "Policy",
    "Preempt",
    "Profile",
    "Resize",
    "Start",
    "Terms",
    "View",
]
