"""Recovery: from a diagnosis through a plan and guard rails to a restarted job.

`configuration.py` is what the administrator allows, `proposing.py` makes a plan for a diagnosis,
`guards.py` forbids actions, `diagnosing.py` runs diagnostics (`health/` parses their output,
`halving.py` finds the faulty node of many), `checkpoints.py` finds where a job resumes, `local.py`
takes actions through the site's own commands. Plans, the record and carrying out plans belong to
the live layer.
"""
