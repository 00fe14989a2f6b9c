"""Much independent work: on processes or threads of this machine, or on a Ray cluster.

`spread` carries it out, in tasks of many items (`flow.py`); a `Journal` remembers what is done, so
that a run that was killed goes on where it was; `objects.py` reads inputs from object storage.
"""
