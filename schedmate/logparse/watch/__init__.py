"""Watches running jobs by their logs: stalled, slowed, diverged, too late, or busy with nothing."""
