"""SchedMate's modules around schedulers: their results become part of a policy's view.

Adapters alone import the modules that they adapt; a policy sees forecasts and slowdowns, never who
found them.
"""
