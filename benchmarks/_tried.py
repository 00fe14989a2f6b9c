"""Names of the facts of `_flows.py`, which were tried and are not used."""

TRIED = (
    "counts a loop",
    "reaches a call",
    "reaches a call under a condition alone",
    "reaches a call in a loop",
    "in the training loop's file",
    "away from the training loop",
    "in a branch for trials",
    "in a function for trials",
    "in a loop",
)
