"""What other packages add to schedmate: the entry points that they register.

A package names a part of itself in its metadata, under the group of what it adds:

    [project.entry-points."schedmate.commands"]
    quota = "my_site.commands:quota"

`plugins` lists them, and `load_plugin` imports one. Importing `importlib.metadata` takes longer
than all else that `schedmate --help` does, so it is imported only if the text of some package's
metadata names the group. A part that comes with schedmate is never replaced by one of that name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.errors import SchedmateError, UsageError, ends_the_program

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "schedmate.commands"
CLUSTERS = "schedmate.clusters"
POLICIES = "schedmate.policies"
RULES = "schedmate.rules"
IMPORTERS = "schedmate.importers"
EMBEDDERS = "schedmate.embedders"


def plugins(group: str, bundled: Collection[str] = ()) -> Mapping[str, str]:
    """What each name in a group stands for, as `module:attribute`, without `bundled` names.

    Of several packages that register one name, the first on Python's path counts.
    """
    found = {point.name: point.value for point in reversed(_registered(group, tuple(sys.path)))}
    return {name: found[name] for name in sorted(found) if name not in bundled}


@cache
def _registered(group: str, path: tuple[str, ...]) -> list[EntryPoint]:
    head = f"[{group}]".encode()
    if not any(text is None or head in text for folder in path for text in _texts(folder)):
        return []
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


@cache
def _texts(folder: str) -> tuple[bytes | None, ...]:
    """The texts of a folder that register parts of schedmate; None for a packed folder's."""
    try:
        beside = os.listdir(folder or ".")  # noqa: PTH208 - a tenth of the start-up otherwise
    except NotADirectoryError:
        return (None,)
    except OSError:
        return ()
    texts = []
    for name in beside:
        if name.endswith((".dist-info", ".egg-info")):
            with suppress(OSError):  # most register nothing
                texts.append(Path(folder, name, "entry_points.txt").read_bytes())
    return tuple(text for text in texts if b"[schedmate." in text)


def load_plugin(what: str, target: str) -> Any:
    """The object, or the module, at `module:attribute`; `what` it is begins the message.

    Raises `UsageError` if it cannot be imported.
    """
    module, _, attribute = target.partition("[")[0].strip().partition(":")
    try:
        plugin: Any = import_module(module.strip())
        for name in filter(None, attribute.strip().split(".")):
            plugin = getattr(plugin, name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{what} cannot be loaded: {error}. Say in PYTHONPATH where it is; if here: "
            "PYTHONPATH=. schedmate ..."
        ) from None
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UsageError(
            f"{what} cannot be loaded: {error}; correct its module, or the name."
        ) from None
    except BaseException as error:
        if ends_the_program(error) or isinstance(error, SchedmateError):
            raise
        fault = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what} cannot be loaded: its module fails ({fault}).") from error
    return plugin
