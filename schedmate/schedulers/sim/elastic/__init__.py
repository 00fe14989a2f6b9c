"""The truth about elastic jobs, from measured tables: step times, gradients, epochs."""

COLUMNS = frozenset({"name", "time", "application", "num_replicas", "batch_size"})
"""What tells a workload of elastic jobs from a trace."""
