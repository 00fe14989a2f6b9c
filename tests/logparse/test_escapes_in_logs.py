"""Coloured logs are read like plain ones."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log
from schedmate.logparse.reading.lines import uncoloured

COLOURS = ("\x1b[31m", "\x1b[1;36m", "\x1b[0;0m", "\x1b[39m", "\x1b]0;title\x07", "\x1b[K")


@given(st.lists(st.one_of(st.sampled_from(COLOURS), st.text("ab1: \n", max_size=4)), max_size=30))
def test_every_byte_that_is_left_was_where_it_says(pieces: list[str]) -> None:
    data = "".join(pieces).encode()

    bare, origin = uncoloured(data)

    assert bare == "".join(piece for piece in pieces if piece not in COLOURS).encode()
    assert bytes(data[origin(index)] for index in range(len(bare))) == bare


def test_a_coloured_failure_is_the_same_failure(tmp_path: Path) -> None:
    steps = [f"\x1b[31mstep\x1b[0m \x1b[32m{n}\x1b[0m \x1b[33mloss\x1b[0m 1.0" for n in range(30)]
    steps.insert(10, "\x1b[31m\x1b[1mValueError: retried\x1b[0m")
    steps.append("\x1b[1;36m(Worker pid=7)\x1b[0;0m \x1b[31mKeyError\x1b[0m: \x1b[35m'a'\x1b[0m")
    path = tmp_path / "job.out"
    path.write_text("\n".join(steps) + "\n")

    with open_log(path) as log:
        found = diagnose(log)

    assert (found.error_name, found.line) == ("Key Error", 32)
    assert [line.line for line in found.ruled_out] == [11]
