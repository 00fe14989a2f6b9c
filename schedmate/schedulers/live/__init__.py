"""The layer between schedmate and a running cluster, common to all schedulers.

`plans.py` says what may be done and why, `executor.py` who does it and what may forbid it,
`record.py` keeps all of it in one append-only file, `apply.py` carries a plan out exactly once.
"""
