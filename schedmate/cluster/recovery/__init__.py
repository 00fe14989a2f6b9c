"""Recovery: from a diagnosis through a plan and guard rails to a restarted job.

`configuration.py` is what the administrator allows, `recover.py` makes, keeps and carries out a
plan for a failed run, `guards.py` forbids actions, `diagnosing.py` runs diagnostics of nodes and
`health.py` reads their output, `checkpoints.py` finds where a job resumes, `local.py` acts through
the site's own commands. The record of plans is `cluster/record.py`.
"""
