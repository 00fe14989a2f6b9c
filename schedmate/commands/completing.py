"""What a shell offers where a value is due: names of policies and the like."""

from __future__ import annotations

from collections.abc import Iterable


def one_policy(incomplete: str) -> list[str]:
    """Names of policies that begin so."""
    from schedmate.schedulers.registry import names

    return _beginning(names(), incomplete)


def policies(incomplete: str) -> list[str]:
    """The same for a list with commas, of which the last name is being typed."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in one_policy(last)]


def estimators(incomplete: str) -> list[str]:
    """Names of estimators that begin so, up to where an argument of theirs is due."""
    from schedmate.schedulers.sim.options import ESTIMATORS

    return _beginning((one.partition(":")[0] for one in ESTIMATORS), incomplete)


def placements(incomplete: str) -> list[str]:
    """Ways to place jobs that begin so."""
    from schedmate.schedulers.sim.options import PLACEMENTS

    return _beginning(PLACEMENTS, incomplete)


def _beginning(known: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
