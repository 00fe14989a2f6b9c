"""The Failure Handler (SchedMate paper, section 3.3): what broke first, whose fault, what now.

with open_log("job.out") as log:
    diagnosis = diagnose(log)
"""

from schedmate.logparse.failure.handler import diagnose, open_job
from schedmate.logparse.failure.rules import Rule, load_rules, site_rules
from schedmate.logparse.failure.states import of_state

__all__ = ["Rule", "diagnose", "load_rules", "of_state", "open_job", "site_rules"]
