"""Ground truth of elastic jobs from measured tables: step times, gradients, epochs."""

COLUMNS = frozenset({"name", "time", "application", "num_replicas", "batch_size"})
"""Columns that distinguish a workload of elastic jobs from a trace."""
