"""Logs that are tables: one line names the columns, and the lines below have only cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from schedmate.logparse.progress.facts import HEAD
from schedmate.logparse.progress.labels import DATE
from schedmate.logparse.progress.registry import read_line
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.words import meaning
from schedmate.logparse.reading import LogFile, parse_line

WIDEST = 200
"""A line with more columns is data, not the head of a table."""
LONGEST = 4000
"""Characters of a line that are examined."""

_SPLITS: dict[str, Callable[[str], list[str]]] = {
    ",": lambda text: text.split(","),
    "\t": lambda text: text.split("\t"),
    ";": lambda text: text.split(";"),
    "|": lambda text: text.strip("| \t│┃").replace("│", "|").replace("┃", "|").split("|"),
    "  ": lambda text: re.split(r"\s{2,}", text.strip()),
    " ": lambda text: text.split(),
}
_COUNTS = re.compile(r"(?i)\b(?:epoch|step|iter|iteration|batch|update|ep|it)s?\b|_step|step_")
_VALUE = re.compile(r"[-+]?[\d.,:/]+(?:[eE][-+]?\d+)?\s?(?:%|\w{1,4})?|nan|inf|-?")
_LEVEL = re.compile(r"^\W*(?:INFO|DEBUG)\W+")
_PREFIX = 60
"""Characters in which the time and the level of a line have to be."""
_NAME = re.compile(r"[^\W\d_].{0,40}|#", re.DOTALL)


class Table(NamedTuple):
    """The columns of a table, and the separator of its cells."""

    names: tuple[str, ...]
    split: str

    def read(self, text: str) -> Sample | None:
        """The sample stated by a row; None for any other line."""
        cells = _cells(_bare(text), " " if self.split == "  " else self.split)
        if len(cells) != len(self.names):
            return None
        filled = [(name, cell) for name, cell in zip(self.names, cells, strict=True) if cell]
        if sum(_VALUE.fullmatch(cell) is not None for _, cell in filled) <= len(filled) / 2:
            return None
        sample = read_line("; ".join(f"{name}: {cell}" for name, cell in filled))
        if sample is not None:
            sample.group = f"table {sample.group}"
        return sample


def find_table(file: LogFile) -> Table | None:
    """The last table head near the beginning of a log, with a column that counts."""
    found = None
    lines = [
        _bare(parse_line(raw, 0, file.layout).text)
        for raw in file.read(0, HEAD).splitlines()
        if raw.strip()
    ]
    for line, below in pairwise([*lines, ""]):
        if len(line) > LONGEST or _COUNTS.search(line) is None:
            continue
        for split in _SPLITS:
            names = _cells(line, split)
            if 2 <= len(names) <= WIDEST and all(map(_NAME.fullmatch, names)) and _counts(names):
                table = Table(tuple(names), split)
                if table.read(below) is not None or _is_rule(below):
                    found = table
                    break
    return found


def _bare(text: str) -> str:
    """A line without its timestamp and level."""
    return _LEVEL.sub("", DATE.sub("", text[:_PREFIX])) + text[_PREFIX:]


def _cells(text: str, split: str) -> list[str]:
    return [cell.strip().strip("\"'") for cell in _SPLITS[split](text)]


def _counts(names: list[str]) -> bool:
    """Whether one column counts and another one is a quantity of training."""
    said = {known[0] for name in names if (known := meaning(name, "")) is not None}
    return bool(said & {"iteration", "epoch"}) and len(said) > 1


def _is_rule(text: str) -> bool:
    return bool(text) and not set(text) - set("-=+|: ─━═┼╪│┃+")
