"""Lucid (ASPLOS'23): profile, predict, pack jobs that do not harm each other, never preempt."""

from schedmate.schedulers.policies.lucid.policy import Lucid

__all__ = ["Lucid"]
