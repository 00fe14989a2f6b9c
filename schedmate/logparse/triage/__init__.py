"""Many failed jobs at once: verdicts, groups of one root cause, suspect nodes, what is new.

with Ledger(path, source) as ledger:
    for verdict, templates in triage(find_targets(source).targets, ledger, processes=8): ...
"""

from schedmate.logparse.triage.document import SCHEMA, JobVerdict, Triage, json_schema
from schedmate.logparse.triage.run import Ledger, triage
from schedmate.logparse.triage.strip import Strip, strip
from schedmate.logparse.triage.summary import causes, summarise
from schedmate.logparse.triage.targets import Batch, Target, find_targets

__all__ = [
    "SCHEMA",
    "Batch",
    "JobVerdict",
    "Ledger",
    "Strip",
    "Target",
    "Triage",
    "causes",
    "find_targets",
    "json_schema",
    "strip",
    "summarise",
    "triage",
]
