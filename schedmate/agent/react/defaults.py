"""Documented defaults of libraries, from the table that static analysis uses as well."""

from __future__ import annotations

from typing import Any

from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.leaves import normal
from schedmate.data import load

_LENGTHS = ("num_train_epochs", "max_epochs", "epochs", "max_steps")


def documented_default(name: str, key: str) -> Any:
    """The default of the field `key` of the library class `name`; None if not known.

    `name` is a dotted path, or its last part alone.
    """
    table: dict[str, dict[str, Any]] = load("agent/interp/libs/libraries.yaml")["records"]
    last = name.rpartition(".")[2]
    fields = table.get(name) or next(
        (held for path, held in table.items() if path.rpartition(".")[2] == last), None
    )
    if fields is None:
        return None
    names = rules("names")
    aliases = _LENGTHS if key == "iters" else (key, *names["extras"].get(key, ()))
    known = {normal(field): value for field, value in fields.items()}
    found = (known.get(normal(alias)) for alias in aliases)
    return next((one for one in found if one is not None and one != -1), None)
