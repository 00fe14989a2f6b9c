"""How many points candidates have before any fit: the table `prior.yaml`, set by hand.

The points order the candidates of a field, 0 to 100. How likely the one chosen is right is another
matter: that is fitted, with the points as one of many facts (`confidence.py`).
"""

from __future__ import annotations

from schedmate.base.data import load


class Points:
    """The rows of one section of the table, read when first asked for."""

    __slots__ = ("_rows", "section")

    def __init__(self, section: str) -> None:
        self.section = section
        self._rows: dict[str, float] = {}

    def __getitem__(self, row: str) -> float:
        """What a row begins with, adds, multiplies by or demands; KeyError where there is none."""
        if not self._rows:
            table: dict[str, list[float | str]] = load("agent/fields/prior.yaml")[self.section]
            self._rows = {name: float(points) for name, (points, _) in table.items()}
        return self._rows[row]

    def sure(self, row: str, certain: bool) -> float:
        """A row, or the one of the same under a condition that could not be decided."""
        return self[row if certain else f"{row} unsure"]


source = Points("source")
call = Points("call")
further = Points("further")
devices = Points("devices")
validation = Points("validation")
dataset = Points("dataset")
dataset_class = Points("dataset class")
section = Points("section")
hint = Points("hint")
dataset_setting = Points("dataset setting")
opened = Points("opened")
length = Points("length")
length_call = Points("length call")
length_setting = Points("length setting")
loop = Points("loop")
model = Points("model")
network = Points("network")
around_networks = Points("around networks")
model_call = Points("model call")
nameless_network = Points("nameless network")
model_setting = Points("model setting")
configured_class = Points("configured class")
part_of_an_assembly = Points("part of an assembly")
task = Points("task")
