"""Finds past jobs similar to a new one, and estimates from them (SchedMate paper, section 3.1)."""
