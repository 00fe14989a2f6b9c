"""Recovery: from a verdict to a plan, past guard rails, to a cluster that runs again.

`configuration.py` is what the administrator allows, `proposing.py` makes a plan of a diagnosis,
`guards.py` forbids, `diagnosing.py` runs diagnostics (`health/` reads what they print, `halving.py`
finds the faulty node of many), `checkpoints.py` finds where a job goes on, `local.py` takes actions
through the site's own commands. Plans, the record and their carrying out are the live layer's.
"""
