"""spaCy's configurations (confection): INI whose sections nest by their dotted names.

`${paths.train}` and the older `${paths:train}` name other values; `@architectures` and the like a
function that is registered.
"""

from __future__ import annotations

import re

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.trees import set_dotted
from schedmate.agent.values import Value

_OLDER = re.compile(r"\$\{([\w.]+):(\w+)\}")


def is_confection(sections: Value) -> bool:
    """Whether every dotted section has the section around it, and one is a registered function."""
    named = sections.mapping or {}
    inner = [name for name in named if "." in name]
    return (
        bool(inner)
        and all(name.rpartition(".")[0] in named for name in inner)
        and any(str(key).startswith("@") for name in inner for key in named[name].mapping or {})
    )


def nested(sections: Value) -> Value:
    """The sections one inside the other, with what they name of each other filled in."""
    config = Value({}, sections.origin)
    for name, section in (sections.mapping or {}).items():
        items = {key: _modern(value) for key, value in (section.mapping or {}).items()}
        config = set_dotted(config, name, Value(items, section.origin))
    return resolve_interpolations(config)


def _modern(value: Value) -> Value:
    """A value with its older references written as newer ones."""
    text = value.text
    return value if text is None else Value(_OLDER.sub(r"${\1.\2}", text), value.origin)
