"""The layer between schedmate and a running cluster, common to all schedulers.

`plans.py` has what may be done and why, `executor.py` the protocols of who does it and what may
forbid it, `record.py` stores all of it in one append-only file, `apply.py` carries out a plan
exactly once.
"""
