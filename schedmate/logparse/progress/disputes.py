"""Which time is used if a log contradicts its own timestamps, and why."""

LONGER = (
    "the log states a time of {:.3g} that does not say its unit; the timestamps are believed, as "
    "lines come faster than that"
)
COARSE = (
    "the log states {:.3g} s a step with few digits; the timestamps, which say more, are believed"
)
ALONE = (
    "the log states {:.3g} s for the latest step only; the timestamps, which are even and cover "
    "all steps, are believed"
)
TOO_LONG = (
    "the log states {:.3g} s a step; the timestamps, which are even, leave no room for steps that "
    "long and are believed"
)
SHORTER = (
    "by the timestamps a step takes {:.3g} s; the time stated is believed, as it is that of a step "
    "alone and the timestamps also hold what is done between steps"
)
RATE = (
    "the rate stated is {:.3g} steps a second; the timestamps, which are even and cover all steps, "
    "show another one and are believed"
)
WORKED_OUT = (
    "{} would make a step take {:.3g} s; the timestamps, which are even and need no batch size, "
    "show another time and are believed"
)
