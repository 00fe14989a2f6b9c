"""Logs of simulated jobs, as real text: their progress lines and their failures."""
