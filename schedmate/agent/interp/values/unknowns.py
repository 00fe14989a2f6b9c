"""What is not known, or no more of it than its beginning or how it hangs together."""

from __future__ import annotations

import re

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.values.base import Kind, of
from schedmate.agent.values import UNSAID, Unknown, Value, unknown


@of(Unknown, Passes)
class Open(Kind[Unknown]):
    """An unknown value."""

    unknown = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        known = _beginning(base, self.data(base).text) if name == "startswith" else None
        return known or super().getattr(machine, base, name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        call.path = f"?{self.data(func).text or ''}"
        return machine.external(call)


def _beginning(base: Value, text: str | None) -> Value | None:
    """`startswith` of a text that is known up to a variable of the shell: `logs/$RUN`, `$DATA`.

    A variable alone is a word that options are given, and no option.
    """
    if text is None or not ("$" in text or UNSAID in text):
        return None
    known = re.split(rf"[$`{UNSAID}]", text, maxsplit=1)[0]

    def call(machine: Machine, call: Invocation) -> Value:
        start = call.first.text
        if start is None:
            return unknown(origin=base.origin)
        if known.startswith(start):
            return Value(True, base.origin)
        if not start.startswith(known) or (not known and start.startswith("-")):
            return Value(False, base.origin)
        return unknown(origin=base.origin)

    return native("str.startswith", call)
