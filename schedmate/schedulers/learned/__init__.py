"""What a scheduler learns from the past: run times, and how many jobs are to come (Lucid, 3.5)."""

from schedmate.schedulers.learned.durations import Learned
from schedmate.schedulers.learned.qssf import QuasiShortest
from schedmate.schedulers.learned.throughput import LearnedLoad

__all__ = ["Learned", "LearnedLoad", "QuasiShortest"]
