"""Options of parsers that a library has and the repository does not show."""

from __future__ import annotations

import re

from schedmate.agent.interp.libs.cli.flags import command_option
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Value

_ARGUMENTS = re.compile(r"(^|\.)(get|parse|read)_(all_)?(args|arguments|options|opts|flags)$")
"""Functions of libraries that read the command line in ways of their own."""


def _option(machine: Machine, base: Call, name: str) -> Value | None:
    return command_option(machine, name) if _ARGUMENTS.search(base.path) else None


PLUGIN = Plugin(missing=_option)
