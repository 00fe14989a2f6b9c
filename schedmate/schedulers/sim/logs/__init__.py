"""Logs of simulated jobs, as real text: what they write while they run, and how they fail."""
