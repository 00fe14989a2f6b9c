"""SchedMate's modules around schedulers: what they find out becomes what a policy may see.

Adapters alone import the modules that they adapt; a policy sees forecasts and slowdowns, never who
found them.
"""
