"""Texts that make a backtracking pattern slow, made from its own parse tree."""

from __future__ import annotations

import itertools
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LENGTH = 2_000
"""Characters of a text of the first size."""
GROWN = 6
"""How many times longer the second size is."""
FLOOR_S = 0.0012
"""Time at the first size below which nothing harmful is going on: 0.6 us a character."""
BOUNDED_S = 0.02
"""Time at the longest text that a caller gives, above which that is too long."""
GIVE_UP_S = 0.25
"""CPU time after which a single match is stopped."""

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_COMMON = " \t\n\ra0A_-./\\'\"=:,()[]{}#%@+*<>|!?$&;~^é"
_ENDS = ("\0", "\n!", "")
_MOST_PUMPS = 6
_MANY = 20
"""A repetition up to so often counts as one of any number."""


def attacks(pattern: str, flags: int = 0) -> Iterator[Callable[[int], str]]:
    """Makers of texts of a length, each meant to have the pattern try the same text many ways."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = parser.parse(pattern, flags)
    letters = _letters(tree)
    found: dict[tuple[str, str, str], None] = {}
    whole = _sample(list(tree), letters)
    bodies = list(_repeated(list(tree), "", letters))
    for before, body in bodies:
        for pump in _pumps(body, [other for _, other in bodies], letters):
            for start, end in itertools.product(dict.fromkeys(("", before)), _ENDS):
                found[start, pump, end] = None
        # begin again at every place
        for pump in (before, before + _sample(body, letters)):
            found["", pump, "\0"] = None
    found["", whole, "\0"] = None
    found["", whole[:-1], "\0"] = None
    for start, pump, end in found:
        if pump:
            yield (
                lambda n, start=start, pump=pump, end=end: (  # type: ignore[misc]
                    start + (pump * (n // len(pump) + 1))[:n] + end
                )
            )


def _letters(tree: Any) -> list[str]:
    """Characters worth trying: those that the pattern speaks of, then common ones."""
    found: dict[str, None] = {}

    def walk(items: Any) -> None:
        for item in items:
            if isinstance(item, tuple) and len(item) == 2:
                kind, held = item
                if kind in (sre.LITERAL, sre.NOT_LITERAL):
                    found[chr(held)] = None
                elif kind is sre.RANGE:
                    found[chr(held[0])] = None
                elif isinstance(held, list | tuple | parser.SubPattern):
                    walk([held])
            elif isinstance(item, list | tuple | parser.SubPattern):
                walk(item)

    walk(tree)
    return list(dict.fromkeys([*found, *_COMMON]))


def accepts(node: Any, char: str) -> bool:
    """Whether a node of one character takes `char`."""
    kind, held = node
    code = ord(char)
    if kind is sre.LITERAL:
        return bool(code == held)
    if kind is sre.NOT_LITERAL:
        return bool(code != held)
    if kind is sre.ANY:
        return char != "\n"
    if kind is sre.RANGE:
        return bool(held[0] <= code <= held[1])
    if kind is sre.CATEGORY:
        name = str(held).rsplit("_", 1)[-1]
        inside = {
            "DIGIT": char.isdigit(), "SPACE": char.isspace(), "WORD": char.isalnum() or char == "_",
        }[name]  # fmt: skip
        return inside is ("NOT" not in str(held))
    if kind is sre.IN:
        negated = held[0][0] is sre.NEGATE
        return any(accepts(one, char) for one in held[negated:]) is not negated
    return False


_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)


def _sample(items: list[Any], letters: list[str], least: bool = True) -> str:
    """A short text that nodes in a row may match."""
    out = ""
    for kind, held in items:
        if kind in _SINGLE:
            out += next((c for c in letters if accepts((kind, held), c)), "a")
        elif kind in _REPEATS:
            low, high, body = held
            out += _sample(list(body), letters) * max(low, 0 if least else min(1, int(high)))
        elif kind is sre.SUBPATTERN:
            out += _sample(list(held[3]), letters, least)
        elif kind is sre.ATOMIC_GROUP:
            out += _sample(list(held), letters, least)
        elif kind is sre.BRANCH:
            out += _sample(list(held[1][0]), letters, least)
    return out


def _repeated(items: list[Any], before: str, letters: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """Each repetition's body and a text that leads up to it."""
    for kind, held in items:
        if kind in _REPEATS:
            body = list(held[2])
            if held[1] is sre.MAXREPEAT or held[1] >= _MANY:
                yield before, body
            yield from _repeated(body, before, letters)
        elif kind is sre.SUBPATTERN:
            yield from _repeated(list(held[3]), before, letters)
        elif kind is sre.ATOMIC_GROUP:
            yield from _repeated(list(held), before, letters)
        elif kind is sre.BRANCH:
            for branch in held[1]:
                yield from _repeated(list(branch), before, letters)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeated(list(held[1]), before, letters)
        before += _sample([(kind, held)], letters)


def _firsts(items: list[Any]) -> list[Any]:
    """The nodes of one character at or near the beginning of nodes in a row."""
    found: list[Any] = []
    for kind, held in items:
        if kind in _SINGLE:
            found.append((kind, held))
        elif kind in _REPEATS:
            found += _firsts(list(held[2]))
        elif kind is sre.SUBPATTERN:
            found += _firsts(list(held[3]))
        elif kind is sre.ATOMIC_GROUP:
            found += _firsts(list(held))
        elif kind is sre.BRANCH:
            for branch in held[1]:
                found += _firsts(list(branch))
    return found


def _pumps(body: list[Any], others: list[list[Any]], letters: list[str]) -> list[str]:
    """What to repeat: characters that this and most other repetitions take, and whole bodies."""
    own = [c for c in letters if any(accepts(node, c) for node in _firsts(body))]
    shared = {
        c: sum(any(accepts(node, c) for node in _firsts(other)) for other in others) for c in own
    }
    chosen = sorted(own, key=lambda c: -shared[c])[: _MOST_PUMPS - 2]
    return list(dict.fromkeys([*chosen, _sample(body, letters), _sample(body, letters, False)]))


# -- measuring -------------------------------------------------------------


class _TooSlowError(Exception):
    pass


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Stop a match, which looks for signals now and then, after so much CPU time."""

    def stop(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def least_time(apply: Callable[[str], object], text: str, tries: int = 1) -> float:
    """The least CPU time of some tries [s]; infinite for what had to be stopped."""
    best = float("inf")
    for _ in range(tries):
        try:
            with _stopped_after(GIVE_UP_S):
                begin = time.thread_time()
                apply(text)
                best = min(best, time.thread_time() - begin)
        except _TooSlowError:
            return float("inf")
    return best


def slowest(
    pattern: str, flags: int, how: str, length: int | None = None
) -> tuple[str, float, float] | None:
    """The first text on which the pattern takes super-linear time, None where there is none.

    Args:
        pattern, flags: as `re.compile` takes them.
        how: the method that is used of it: `match`, `fullmatch`, or one that searches.
        length: the longest text that its caller gives it; the time there is all that counts.

    Returns:
        The beginning of the text, the time at the first size and at the second [s].
    """
    compiled = re.compile(pattern, flags)
    apply: Callable[[str], object] = {
        "match": compiled.match,
        "fullmatch": compiled.fullmatch,
    }.get(how, lambda text: sum(1 for _ in compiled.finditer(text)))
    floor = FLOOR_S
    for make in attacks(pattern, flags):
        first = least_time(apply, make(length or LENGTH))
        if first < floor:
            continue
        if first == float("inf"):
            return make(60), first, first
        if length is not None:
            first = least_time(apply, make(length), 3)
            if first > BOUNDED_S:
                return make(60), first, first
            continue
        second = least_time(apply, make(LENGTH * GROWN))
        if second > first * GROWN * 2.5:
            first = least_time(apply, make(LENGTH), 5)
            second = least_time(apply, make(LENGTH * GROWN), 5)
            if second > first * GROWN * 2.5:
                return make(60), first, second
        floor = max(floor, 1.5 * first)  # slow, and linear: there is nothing to see below that
    return None
