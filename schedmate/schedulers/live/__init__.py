"""What stands between schedmate and a running cluster, the same for every scheduler.

`plans.py` says what may be done and why, `executor.py` who does it and what may forbid it,
`record.py` keeps all of it in one append-only file, `apply.py` carries a plan out exactly once.
"""
