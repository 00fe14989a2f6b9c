"""The paper's binary search: bounded in probes, right where its assumption holds."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.examine import EXTRA_PROBES, bisect_to_failure
from schedmate.logparse.reading import open_log
from schedmate.logparse.reading.blocks import attempts

STEP = "iteration {n}/ 9000 | elapsed time per iteration (ms): 130.1 | lm loss: 2.1\n"
QUIET = "nothing of note in this line, number {n}, it only takes up room in the log\n"
FAULT = "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n"


@settings(max_examples=20)
@given(
    lines=st.lists(st.booleans(), min_size=5, max_size=400),
    after=st.integers(0, 300),
    chunk=st.integers(200, 5000),
)
def test_probes_are_bounded_and_the_failure_is_found(
    lines: list[bool], after: int, chunk: int
) -> None:
    text = "".join((STEP if step else QUIET).format(n=n) for n, step in enumerate(lines))
    text += STEP.format(n=8000) + FAULT + "".join(QUIET.format(n=n) for n in range(after))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.out"
        path.write_text(text)
        with open_log(path) as log:
            file = log.files[0]
            whole = attempts(file)[-1]
            part, used = bisect_to_failure(file, whole, chunk=chunk)
            chunks = math.ceil(file.size / chunk)
            assert used <= math.ceil(math.log2(chunks)) + EXTRA_PROBES
            assert part.offset == file.line_offset(part.first_line)
            # every chunk holds progress or a failure where quiet lines are few
            quiet = max(map(len, "".join("01"[step] for step in lines).split("1"))) + after
            if quiet * len(QUIET) < chunk:
                assert part.offset <= text.index("Traceback")


def test_both_locators_agree_and_say_what_it_cost(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("".join(STEP.format(n=n) for n in range(60_000)) + FAULT)
    with open_log(path) as log:
        binary = diagnose(log, locator="binary")
        whole = diagnose(log, locator="scan")
    assert (
        (binary.error_name, binary.line) == (whole.error_name, whole.line) == ("Key Error", 60_001)
    )
    assert binary.probes is not None
    assert binary.probes <= math.ceil(math.log2(path.stat().st_size / (1 << 18))) + EXTRA_PROBES
    assert whole.probes is None
