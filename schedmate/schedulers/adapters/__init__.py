"""SchedMate's modules around schedulers: their results become part of a policy's view.

Only adapters import the modules that they adapt; a policy sees forecasts and slowdowns, not their
source.
"""
