"""What jobs lose that do not fit under one access switch."""

from __future__ import annotations

from dataclasses import dataclass, fields

from schedmate.errors import UsageError


@dataclass(frozen=True)
class Spanning:
    """Communication takes longer across access switches; off by default.

    Placement under one switch improves the bandwidth of all-reduce by 27 % relative to placement
    across switches (ASI paper, section 4.1), so the same bytes take 1.27 times as long across them.
    """

    longer: float = 0.27
    """By what part communication takes longer across switches than under one."""
    communication: float = 0.2
    """Share of a job's time under one switch spent in communication, if the trace has no column
    `communication`: an assumption."""

    @classmethod
    def parse(cls, text: str) -> Spanning:
        """From `longer=0.27,communication=0.3`, defaults for the rest. Raises `UsageError`."""
        values = {}
        known = {one.name: one.default for one in fields(cls)}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            try:
                values[key] = float(value)
                if key not in known or not 0.0 <= values[key] <= (1.0 if key == _PART else 100.0):
                    raise ValueError(key)
            except ValueError:
                settings = ", ".join(f"{name}={default:g}" for name, default in known.items())
                raise UsageError(
                    f"--cross-switch: {part!r} is not a setting; there are {settings} "
                    "(communication from 0 to 1)."
                ) from None
        return cls(**values)

    def speed(self, communication: float | None) -> float:
        """Speed of a job across switches, as part of its speed under one."""
        part = self.communication if communication is None else communication
        return 1.0 / (1.0 + self.longer * min(max(part, 0.0), 1.0))


_PART = "communication"
