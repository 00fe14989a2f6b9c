"""Lucid (ASPLOS'23): profile, predict, pack where it does no harm, never preempt."""

from schedmate.schedulers.policies.lucid.policy import Lucid

__all__ = ["Lucid"]
