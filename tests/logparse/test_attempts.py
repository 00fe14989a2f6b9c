"""Several attempts in one file: the last one counts, whatever marks its beginning."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.data import load
from schedmate.jobs import Diagnosis, Progress
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.ending import track_job
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.blocks import attempts
from schedmate.logparse.reading.storage import Memory
from schedmate.report.jobs import runs_in_words


def file_of(text: str) -> LogFile:
    return LogFile("job.out", Memory(text.encode()))


def of(text: str) -> Diagnosis:
    return diagnose(Log("job.out", [file_of(text)]))


def steps(first: int, last: int) -> str:
    return "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(first, last))


def trace(error: str) -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 5, in f\n    go()\n{error}\n'


OOM = trace("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
GONE = trace("FileNotFoundError: [Errno 2] No such file or directory: 'ckpt'")
# What stands at the beginning of each attempt, with its number, and between them.
SHAPES = {
    "banner": ("===== Attempt {n}/3 =====\n", ""),
    "launcher": ("2024-01-0{n} 10:00:00 INFO launcher: attempt {n} started\n", ""),
    "run": ("Run #{n} starting on node gpu-7\n", ""),
    "wrapper": ("", "[watchdog] Restarting the training job in 10 s\n"),
    "dated wrapper": ("", "2024-01-01 10:00:00 restarting job (1/3)\n"),
    "resubmitted": ("", "Resubmitting job 1234\n"),
    "Slurm": ("", "SLURM_RESTART_COUNT=1\n"),
    "traced shell": ("+ torchrun --nproc_per_node=8 train.py\n", ""),
    "its own first line": ("Loading the configuration of run 17 at Mon Jan {n} 10:00\n", ""),
    "its own first line, dated": (
        "[2024-01-0{n} 10:00:00,123][train][INFO] - Reading /a/b.yaml\n",
        "",
    ),
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("trained", [0, 1, 2])
def test_the_last_attempt_counts_however_it_begins(shape: str, trained: int) -> None:
    begin, between = SHAPES[shape]
    text = begin.format(n=1) + steps(1, 30) + OOM + between
    text += begin.format(n=2) + "hello\n" + steps(30, 30 + trained) + GONE
    found = of(text)
    assert (found.error_name, found.attempt, found.attempts) == ("File Not Found", 2, 2)
    assert found.line == text[: text.index(GONE)].count("\n") + 1


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize(
    "end", ["training is done\n", "Done!\n", "iteration 900/ 900 | lm loss: 2.1\n"]
)
def test_an_attempt_that_finished_supersedes_the_failure_before_it(shape: str, end: str) -> None:
    begin, between = SHAPES[shape]
    text = begin.format(n=1) + steps(1, 30) + OOM + between + begin.format(n=2) + "hello\n" + end
    found = of(text)
    assert (found.error_type, found.finished) == ("none", True)


def test_three_attempts() -> None:
    text = "".join(f"Attempt {n}\n{steps(1, 9)}{OOM}" for n in (1, 2)) + "Attempt 3\n" + GONE
    assert [one.first_line for one in attempts(file_of(text))] == [1, 14, 27]
    assert of(text).error_name == "File Not Found"


def test_steps_that_count_from_lower_on_are_of_another_attempt() -> None:
    assert of(steps(1, 30) + OOM + steps(1, 3) + GONE).error_name == "File Not Found"
    other_ranks = steps(1, 30) + OOM + steps(29, 31)
    assert of(other_ranks).error_name == "Out of Memory"


@pytest.mark.parametrize(
    "line",
    [
        "S3 read failed, retrying in 2s (attempt 2/5)",
        "Retry attempt 2 of 5 for shard 7",
        "epoch 2 run time 30 s",
        "wandb: Restarting the stream",
        "run 2 more epochs to converge",
        "The trial of 1965",
    ],
)
def test_what_is_tried_again_within_a_run_begins_no_attempt(line: str) -> None:
    text = f"reading the data\n{steps(1, 9)}{line}\n{steps(9, 12)}{line}\n" + OOM
    assert len(attempts(file_of(text))) == 1
    assert of(text).error_name == "Out of Memory"


def test_a_first_line_that_comes_again_and_again_begins_no_attempt() -> None:
    line = "Evaluating the model on the whole validation set\n"
    assert len(attempts(file_of((line + steps(1, 5)) * 6))) == 1
    ranks = "Loading the configuration of the model\n" * 8
    assert len(attempts(file_of(ranks + steps(1, 5) + OOM + ranks))) == 1


HEAD = "Loading the configuration\n+ modules: cuda, nccl\nreading 12 shards\nmodel has 7 layers\n"
HEAD += "optimiser is AdamW\nstarting from scratch\n"


def dated(text: str, start: int) -> str:
    """The lines with a time each, a minute apart."""
    first = datetime(2024, 1, 1) + timedelta(minutes=start)  # noqa: DTZ001 - as logs write it
    lines = enumerate(text.splitlines())
    return "".join(f"{first + timedelta(minutes=n)} {line}\n" for n, line in lines)


def epochs(count: int, inner: int = 4) -> str:
    lines = (f"Epoch {e} step {s}/{inner} loss 2.{s}" for e in range(count) for s in range(inner))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("end", [OOM, "Training completed in 3 h\n", "Done.\n", HEAD])
@pytest.mark.parametrize("run", [steps(10, 40), epochs(3)])
def test_a_counter_that_starts_again_after_an_end_begins_a_run(end: str, run: str) -> None:
    """As in a sweep: no banner tells one run from the next."""
    head = HEAD if end == HEAD else "warming up\n"
    parts = [head + run + end.replace(HEAD, "")] * 3
    found = attempts(file_of("".join(parts)))
    lines = parts[0].count("\n")
    assert [one.first_line for one in found] == [1, lines + 1, 2 * lines + 1]


CANCELLED = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"
FORMS = [
    steps(1, 30),
    epochs(5),
    "".join(f"{{'loss': 2.{n}, 'epoch': {n}.5, 'lr': 0.1}}\n" for n in range(9)),
    (Path(__file__).parents[2] / "schedmate/sample/job.out").read_text(),
]
WHOLE = [form + end for form in FORMS for end in (OOM, GONE, CANCELLED, "Training completed\n")]


def outcome_of(found: Diagnosis) -> tuple[str, str | None, int | None]:
    if found.error_name is None:
        return ("finished" if found.finished else "open"), None, None
    return ("failed" if found.error_type != "none" else "stopped"), found.error_name, found.line


def test_two_logs_in_one_are_two_runs_with_the_verdict_of_each() -> None:
    """Without a banner, whatever either counts and ends in."""
    alone = [outcome_of(of(text)) for text in WHOLE]
    for n, one in enumerate(WHOLE):
        for m in range(n % 3, len(WHOLE), 3):
            found = of(one + WHOLE[m])
            lines = one.count("\n")
            runs = [(run.outcome, run.error_name, run.line) for run in found.runs]
            outcome, name, line = alone[m]
            second = (outcome, name, line and line + lines)
            assert runs == [alone[n], second], (one[-200:], WHOLE[m][:200])
            assert outcome_of(found) == second


def test_a_counter_that_starts_again_after_a_long_pause_begins_a_run() -> None:
    """As of a job that the scheduler killed and put back into the queue without a word."""
    run = "Loading the configuration\n" + steps(10, 40)
    requeued = dated(run, 0) + dated(run, 300)
    assert [one.first_line for one in attempts(file_of(requeued))] == [1, 32]
    assert went(requeued).failure is None
    at_once = dated(run, 0) + dated(run, 31)
    assert len(attempts(file_of(at_once))) == 1


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_source_that_a_traceback_quotes_begins_no_run(prefix: str) -> None:
    """`assert step < 5` is no step 5."""
    failed = trace("AssertionError").replace("go()", "assert step < 5")
    lines = [f"step {n}/40 | loss 1.0 | 0.1 s/it" for n in range(21)] + failed.splitlines()
    (found,) = attempts(file_of("".join(f"{prefix}{line}\n" for line in lines)))
    assert (found.first_line, found.last_line) == (1, 25)


@given(
    st.integers(2, 6),
    st.integers(2, 6),
    st.sampled_from(["", "evaluating: accuracy 0.7\n", "Saved a checkpoint to /ckpt\n"]),
    st.sampled_from(["Epoch {e}\n", "Epoch {e}/9\n", "", "epoch {e}: "]),
    st.integers(1, 600),
)
def test_steps_that_start_again_with_each_epoch_begin_no_run(
    outer: int, inner: int, between: str, header: str, pause: int
) -> None:
    text, minute = "Loading the configuration\n", 0
    for e in range(outer):
        lines = header.format(e=e) + "".join(f"step {s}/{inner} loss 2.{s}\n" for s in range(inner))
        text += dated(lines + between, minute)
        minute += lines.count("\n") + pause
    assert len(attempts(file_of(text))) == 1


def test_every_mark_knows_its_example() -> None:
    marks = load("logparse/reading/attempts.yaml")
    for entry in marks["restarts"]:
        text = "start\n" + steps(1, 5) + OOM + entry["example"] + "\n" + GONE
        assert len(attempts(file_of(text))) == 2, entry["example"]


def test_what_torchelastic_wrote_down_of_an_earlier_attempt_is_over(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("hello\n")
    for attempt, time, error in ((0, 10, "KeyError: 'a'"), (1, 20, "IndexError: b")):
        folder = tmp_path / "run" / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        extra = {"py_callstack": trace(error), "timestamp": str(time)}
        content = {"message": {"message": error, "extraInfo": extra}}
        (folder / "error.json").write_text(json.dumps(content))
    with open_log(tmp_path) as log:
        assert diagnose(log).error_name == "Index Error"


@pytest.mark.parametrize("rest", ["", "loading modules\n", "srun: job 17 has been submitted\n"])
def test_what_only_looks_like_the_beginning_of_an_attempt_supersedes_nothing(rest: str) -> None:
    log = f"===== Attempt 1/2 =====\n{steps(1, 30)}{OOM}===== Attempt 2/2 =====\n{rest}"
    found = of(log)
    assert found.error_name == "Out of Memory"
    assert (found.attempt, found.attempts) == (1, 2)
    going_on = of(log + steps(1, 30))
    assert (going_on.error_type, going_on.attempt) == ("none", 2)


def went(text: str) -> Progress:
    return track_job(Log("job.out", [file_of(text)]))[0]


def test_a_log_is_a_sequence_of_runs_each_with_its_outcome() -> None:
    begin = "===== Attempt {n}/5 =====\n"
    ends = [OOM, OOM, OOM, OOM, GONE]
    text = "".join(begin.format(n=n) + steps(1, 20) + end for n, end in enumerate(ends, 1))
    found = of(text)
    assert [run.error_name for run in found.runs] == ["Out of Memory"] * 4 + ["File Not Found"]
    assert {run.outcome for run in found.runs} == {"failed"}
    assert found.error_name == "File Not Found"
    words = "4 of 5 runs ended in Out of Memory, the last ended in File Not Found"
    assert runs_in_words(found.runs) == words
    well = of(text.removesuffix(GONE) + "training is done\n")
    assert [run.outcome for run in well.runs] == ["failed"] * 4 + ["finished"]
    assert well.error_type == "none"
    assert of(steps(1, 20) + OOM).runs == []


SKIPPED = "[WARN] configuration {n} skipped: CUDA out of memory. Tried to allocate 2.00 GiB\n"
TRIED = "configuration {n} of 200: batch {n}\n"


@pytest.mark.parametrize("line", [SKIPPED, "trial {n} failed: CUDA out of memory\n"])
def test_what_was_caught_before_a_successful_end_is_an_incident(line: str) -> None:
    sweep = "".join(TRIED.format(n=n) + line.format(n=n) for n in range(1, 41))
    found = of(sweep + "[INFO] Done.\n")
    assert (found.error_type, found.finished) == ("none", True), found.reason
    assert [(one.error_name, one.count) for one in found.incidents] == [("Out of Memory", 40)]
    assert found.incidents[0].line == 2
    assert of(sweep + OOM).error_type == "framework", "not caught"
    assert of(OOM + "Done.\n").error_type == "framework", "a script goes on after a crash"


def test_a_failed_log_has_no_time_left_for_either_reader() -> None:
    lost = "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X)\n"
    assert went(steps(1, 60)).eta_s is not None
    for end, name in ((OOM, "Out of Memory"), (lost, "NCCL Timeout")):
        progress = went(steps(1, 60) + end)
        assert (progress.ended, progress.failure, progress.eta_s) == ("failed", name, None)
        assert progress.ended_line == of(steps(1, 60) + end).line
    assert went(steps(1, 60) + OOM + steps(60, 70)).ended is None, "it went on"
    again = steps(1, 60) + OOM + "===== Attempt 2/3 =====\nloading\n"
    assert went(again).ended is None, "the next run has begun"
    stopped = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"
    assert went(steps(1, 60) + stopped).ended == "stopped"


def test_both_name_the_first_loss_that_is_no_number() -> None:
    nan = steps(41, 900).replace("loss: 2.", "loss: nan #")
    text = steps(1, 41) + nan
    assert went(text).loss_state_since == 41
    assert of(text).line == 41
