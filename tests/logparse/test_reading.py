"""Lines, prefixes, timestamps, tracebacks, attempts: what a log says and who said it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.data import load
from schedmate.logparse.reading import Line, LogFile, parse_line, refreshes
from schedmate.logparse.reading.blocks import attempts, blocks
from schedmate.logparse.reading.lines import (
    LONGEST_TEXT,
    origin_of_file,
    parse_time,
    prefix_forms,
    split_prefix,
)
from schedmate.logparse.reading.log import HEAD
from schedmate.logparse.reading.storage import LONG_LINE, TAIL, Memory


def log_of(data: bytes) -> LogFile:
    return LogFile("log", Memory(data))


raw_logs = st.lists(
    st.one_of(st.sampled_from([b"\n", b"\r", b"\r\n", b"\b\b", b"\n\n"]), st.binary(max_size=12))
).map(b"".join)


@given(raw_logs, st.integers(1, 40))
def test_chunks_are_the_file_in_whole_numbered_lines(data: bytes, block: int) -> None:
    chunks = list(log_of(data).chunks(block=block))

    assert b"".join(chunk.data for chunk in chunks) == data
    for chunk in chunks:
        assert data[chunk.offset : chunk.offset + chunk.size] == chunk.data
        assert chunk.first_line == data[: chunk.offset].count(b"\n") + 1
        assert chunk.offset == 0 or data[chunk.offset - 1 : chunk.offset] == b"\n"


@given(raw_logs, st.integers(0, 200))
def test_numbers_and_offsets_of_lines_agree(data: bytes, offset: int) -> None:
    log, offset = log_of(data), min(offset, len(data))
    number = log.line_number(offset)

    assert number == data[:offset].count(b"\n") + 1
    assert log.line_offset(number) == log.align(offset) == data[:offset].rfind(b"\n") + 1
    assert [line.raw for line in log.lines()] == (
        data.removesuffix(b"\n").split(b"\n") if data else []
    )
    assert log.line_count() == len(list(log.lines()))


@given(raw_logs, st.integers(1, 40))
def test_pieces_from_the_end_are_the_pieces_from_the_beginning(data: bytes, block: int) -> None:
    pieces = list(log_of(data).pieces_reversed(block=block))

    assert [piece.data for piece in pieces][::-1] == [p for p in re.split(rb"[\r\n\b]", data) if p]
    assert all(data[at : at + len(piece)] == piece for at, piece in pieces)


@given(raw_logs, st.integers(1, 40))
def test_matching_pieces_are_the_pieces_that_match(data: bytes, block: int) -> None:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    pattern = re2.compile(rb"[a-z\x80-\xff]{2}", options)
    log = log_of(data)

    assert list(log.matching_reversed(pattern, block=block)) == [
        piece for piece in log.pieces_reversed() if pattern.search(piece.data)
    ]


def test_of_a_very_long_line_both_ends_are_kept_and_the_count_goes_on() -> None:
    long = b"a" * HEAD + b"-" * (2 * LONG_LINE) + b"z" * TAIL
    log = log_of(b"first\n" + long + b"\nlast\n")
    lines = list(log.lines())

    assert [line.number for line in lines] == [1, 2, 3]
    assert lines[1].text.startswith("a" * 1000)
    assert lines[1].text.endswith("z" * 1000)
    assert len(lines[1].raw) < LONG_LINE
    assert next(iter(log.lines(3, 3))).text == "last"
    chunk = next(c for c in log.chunks() if b"last" in c.data)
    assert log.read(chunk.offset_of(chunk.data.index(b"last")), 4) == b"last"


def test_of_a_long_line_the_beginning_and_the_end_become_text() -> None:
    raw = b"2024-01-01 10:00:00 [rank3]: " + "é ".encode() * 200_000 + b"RuntimeError: x"

    line = parse_line(raw, 7)
    assert len(line.text) <= LONGEST_TEXT
    assert line.raw == raw
    assert (line.rank, line.time) == (3, 1_704_103_200.0)
    assert line.text.startswith("é é é")
    assert line.text.endswith("é RuntimeError: x")
    # every redraw of a bar is a text of its own
    assert [len(text) for text in refreshes(raw + b"\r" + b"y" * 100_000)] == [LONGEST_TEXT] * 2


def test_the_text_of_a_line_is_what_stays_on_the_screen() -> None:
    raw = b"\x1b[1m 10%|#  | 1/10\r 20%|## | 2/10\x1b[A\r\r\n"

    assert refreshes(raw) == [" 10%|#  | 1/10", " 20%|## | 2/10"]
    assert parse_line(raw, 7).text == " 20%|## | 2/10"
    assert refreshes(b" 1/3\b\b\b\b 2/3") == [" 1/3", " 2/3"]
    assert parse_line(b"\0\0caf\xe9\x07", 1).text == "café"
    assert parse_line(b"\x1b]0;title\x07done", 1).text == "done"


@pytest.mark.parametrize(
    "form", load("logparse/reading/prefixes.yaml"), ids=lambda form: form["name"]
)
def test_every_prefix_is_read_from_its_example(form: dict[str, str]) -> None:
    known = {one.name: one for one in prefix_forms()}
    origin, rest = split_prefix(form["example"], (known[form["name"]],))

    assert rest
    assert rest != form["example"]
    assert (
        origin.rank is not None
        or origin.node is not None
        or origin.stream
        or "time" in form["pattern"]
    )


def test_an_ambiguous_prefix_counts_only_where_most_lines_have_it() -> None:
    labelled = b"".join(b"%d: step %d\n" % (n % 4, n) for n in range(40))
    counted = b"".join(b"%d: the line %d\n" % (n, n) for n in range(40))

    assert {line.rank for line in log_of(labelled).lines()} == {0, 1, 2, 3}
    assert {line.rank for line in log_of(counted).lines()} == {None}


def test_prefixes_nest() -> None:
    lines = b"".join(b" %d: [rank%d]: step %d\n" % (n % 2, n % 2, n) for n in range(10))
    line = next(iter(log_of(lines).lines(2, 2)))

    assert (line.rank, line.text) == (1, "step 1")


@pytest.mark.parametrize(
    "stamp",
    [
        "2024-05-02 10:11:12 ",
        "[2024-05-02T10:11:12.345Z] ",
        "2024/05/02 10:11:12,345 - ",
        "May  2 10:11:12 ",
        "10:11:12.345 ",
    ],
)
def test_a_timestamp_before_the_rank_hides_neither(stamp: str) -> None:
    lines = log_of(f"{stamp}[rank3]: step 1\n{stamp}ERROR - [rank3]: gone\n".encode()).lines()

    assert [(line.rank, line.text) for line in lines] == [(3, "step 1"), (3, "ERROR - gone")]
    assert all(line.time is not None for line in log_of(f"{stamp}[rank3]: x\n".encode()).lines())


def test_a_timestamp_without_a_rank_behind_it_stays() -> None:
    text = "Mar  2 08:05:41 gpu-007 kernel: NVRM: Xid"
    (line,) = log_of(f"{text}\n".encode()).lines()

    assert (line.rank, line.text) == (None, text)


@pytest.mark.parametrize(
    ("name", "rank", "node"),
    [
        ("rank_3.log", 3, None),
        ("worker-12.out", 12, None),
        ("attempt_0/5/stderr.log", 5, None),
        ("log.7", None, None),
        ("slurm-991-node042.out", None, "node042"),
        ("job-8123.out", None, None),
        ("train.log", None, None),
        ("train_3.log", 3, None),
        ("train-123.0.out", 0, None),
        ("train-4711.12.err", 12, None),
    ],
)
def test_a_file_name_says_rank_and_node(name: str, rank: int | None, node: str | None) -> None:
    origin = origin_of_file(Path("/logs") / name, Path("/logs"))

    assert (origin.rank, origin.node) == (rank, node)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-10-10 12:34:56,500 - INFO - x", 1728563696.5),
        ("[2024-10-10T12:34:56.5Z] x", 1728563696.5),
        ("2024-10-10T14:34:56+02:00 x", 1728563696),
        ("2024/10/10 12:34:56 x", 1728563696),
        ("10/10/2024 12:34:56 x", 1728563696),
        ("Thu Oct 10 12:34:56 2024", 1728563696),
        ("[20241010-12:34:56] x", 1728563696),
        ("1728563696.5 x", 1728563696.5),
        ("[12345.678901] NVRM: Xid", 12345.678901),
        ("2024-13-45 12:34:56 x", None),
        ("loss: 0.5, lr: 1e-4", None),
        ("eta 0:12:30 left", None),
        ("", None),
    ],
)
def test_timestamps(text: str, seconds: float | None) -> None:
    assert parse_time(text) == (None if seconds is None else pytest.approx(seconds))


def test_times_without_a_year_still_differ_by_what_passed() -> None:
    for first, second in [
        ("I1010 12:34:56.5 17 x.py:3] a", "I1010 12:35:56.5 17 x.py:3] a"),
        ("Oct 10 12:34:56 host kernel: a", "Oct 10 12:35:56 host kernel: a"),
        ("[12:34:56] a", "[12:35:56] a"),
        ("10-10 12:34:56 INFO a", "10-10 12:35:56 INFO a"),
    ]:
        before, after = parse_time(first), parse_time(second)
        assert before is not None
        assert after is not None
        assert after - before == pytest.approx(60)


def grouped(text: str) -> list[tuple[str, str | None, int]]:
    lines = [parse_line(raw, n) for n, raw in enumerate(text.encode().split(b"\n"), start=1)]
    return [(block.kind, block.exception, len(block.lines)) for block in blocks(lines)]


def test_a_traceback_with_its_causes_is_one_block() -> None:
    text = """step 1
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    g()
torch.cuda.OutOfMemoryError: CUDA out of memory.
Tried to allocate 2 GiB
srun: error: n1: task 0: Exited with exit code 1"""

    assert grouped(text) == [
        ("line", None, 1),
        ("traceback", "OutOfMemoryError", 12),
        ("line", None, 1),
    ]


def test_interleaved_ranks_keep_their_tracebacks_whole() -> None:
    one = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: no"]
    text = "\n".join(f"[rank{rank}]: {line}" for line in one for rank in (0, 1, 2))

    assert grouped(text) == [("traceback", "ValueError", 3)] * 3

    stamped = "\n".join(f"2024-05-02 10:11:12 {line}" for line in text.splitlines())
    assert grouped(stamped) == [("traceback", "ValueError", 3)] * 3


def test_a_traceback_of_ipython_is_one_block_from_its_head_on() -> None:
    text = """loss: 0.8
InvalidArgumentError                      Traceback (most recent call last)
<ipython-input-19-1f30932aed03> in <module>()
      6   epochs=20,
----> 8   validation_steps=3

/usr/lib/keras/training.py in fit(self)
InvalidArgumentError: Graph execution error:"""

    assert grouped(text) == [("line", None, 1), ("traceback", "InvalidArgumentError", 7)]


def test_a_traceback_behind_a_log_header_is_read() -> None:
    head = "E1010 12:34:56.123000 140 torch/x.py:702] "
    text = "\n".join(
        head + line
        for line in ("Traceback (most recent call last):", '  File "a.py", line 1', "IndexError: 3")
    )

    assert grouped(text) == [("traceback", "IndexError", 3)]


@given(
    st.lists(
        st.sampled_from(
            [
                "Traceback (most recent call last):",
                "  File x",
                "KeyError: 1",
                "",
                "step 1",
                "[rank1]: a",
                "During handling of the above exception, another exception occurred:",
            ]
        )
    )
)
def test_no_line_is_lost_or_doubled(texts: list[str]) -> None:
    lines = [parse_line(text.encode(), number) for number, text in enumerate(texts, start=1)]
    grouped_lines: list[Line] = [line for block in blocks(lines) for line in block.lines]
    blank = {line.number for line in lines if not line.text}

    assert {line.number for line in grouped_lines} | blank == {line.number for line in lines}
    assert len({line.number for line in grouped_lines}) == len(grouped_lines)


MARKS = load("logparse/reading/attempts.yaml")


@pytest.mark.parametrize("mark", [one for part in MARKS.values() for one in part], ids=str)
def test_every_mark_of_an_attempt_is_found_in_its_example(mark: dict[str, str]) -> None:
    assert re.search(mark["pattern"], mark["example"])


START = "[2024-01-01 00:00:00,000] [INFO] [launch.py:82:main] WORLD INFO DICT: {}\n"
STEPS = "".join(f"step {n} loss 0.5\n" for n in range(20))


def test_attempts_appended_to_one_file_are_told_apart() -> None:
    log = log_of((START + STEPS + START + STEPS).encode())
    found = attempts(log)

    assert [(one.first_line, one.last_line) for one in found] == [(1, 21), (22, 42)]
    assert (found[1].offset, found[1].end) == (found[0].end, log.size)
    assert found[1].reason.startswith("[2024-01-01")


def test_the_start_lines_of_many_processes_are_one_start() -> None:
    assert len(attempts(log_of((START * 16 + STEPS).encode()))) == 1
    assert len(attempts(log_of(STEPS.encode()))) == 1


def test_after_a_requeue_the_next_start_is_another_attempt() -> None:
    end = MARKS["ends"][0]["example"] + "\n"

    assert len(attempts(log_of((START + end + START + STEPS).encode()))) == 2
    assert len(attempts(log_of((START + STEPS + end).encode()))) == 1
