"""Traces of past jobs: recognised by their columns, checked row by row, read into a workload."""

from schedmate.schedulers.sim.traces.reader import TraceError, formats, read_trace

__all__ = ["TraceError", "formats", "read_trace"]
