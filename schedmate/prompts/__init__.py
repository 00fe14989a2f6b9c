"""The prompts, one file each, with the version in the name: `NAME.vN.md`.

A prompt that changes gets a new version and a new file, so that a record of a call names exactly
what was said. Text that starts a request is the same for every job, byte for byte: a server's
prefix cache and this project's own depend on it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template


@cache
def load(name: str) -> str:
    """The text of a prompt, for example `metadata.system.v3`."""
    return resources.files(__package__).joinpath(f"{name}.md").read_text("utf-8").strip()


def fill(name: str, **values: str) -> str:
    """The text of a prompt with every `$placeholder` filled; each must be given."""
    return Template(load(name)).substitute(values)
