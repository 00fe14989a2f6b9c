"""Launch command + repository -> `LaunchPlan`. Nothing is run."""

from schedmate.agent.launch.guess import find_entry
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch

__all__ = ["LaunchPlan", "find_entry", "plan_launch"]
