"""`schedmate track`: one log, many ranks, a growing log, two logs, and what is no log."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from cli_runner import Cli
from openai_server import Raw, serve
from processes import LONG_S, ended_in_time

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "track-v1.schema.json").read_text())


def steps(seconds: float, first: int = 1, last: int = 60) -> str:
    return "".join(
        f"step {n}/1000 loss {3 - n / 100:.2f} step_time {seconds} s\n"
        for n in range(first, last + 1)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.out"
    path.write_text("starting\n" + steps(0.5))
    return path


MLPERF = ':::MLLOG {"namespace": "", "time_ms": 1621468114833, "event_type": "INTERVAL_END", '
CANCELLED = "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2021-05-23T08:46:02"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("Training completed.\nsaving the tokenizer\n", "finished (line 62)"),
        (MLPERF + '"key": "run_stop", "metadata": {"status": "success"}}\n', "finished (line 62)"),
        (MLPERF + '"key": "run_stop", "metadata": {"status": "aborted"}}\n', "stopped (line 62)"),
        ("stopping_early: wallclock_cap train_time:600038ms\n", "stopped (line 62)"),
        ("Early stopping at epoch 37 of 100\n", "stopped (line 62)"),
        ("Epoch 37: early stopping\nvalidating 2/100\n", "stopped (line 62)"),
        ("EarlyStopping counter: 5 out of 5, stopping early\n", "stopped (line 62)"),
        ("Fold 5/5 training finished.\n", "finished (line 62)"),
        ("Training completed at epoch 37, accuracy 93.2%\n", "finished (line 62)"),
        ("05/23 10:00:01 Training completed.\n05/23 10:00:02 bye\n", "finished (line 62)"),
        (f"{CANCELLED} DUE TO TIME LIMIT ***\n", "stopped (line 62)"),
        (steps(0.5, 61, 1000), "finished (line 1,001)"),
    ],
)
def test_no_time_is_left_of_a_run_that_is_over(cli: Cli, log: Path, end: str, how: str) -> None:
    log.write_text(log.read_text() + end)
    assert cli("track", str(log)).out.splitlines()[1] == f"500 ms per step, {how}"
    document = json.loads(cli("track", str(log), "--json").out)
    jsonschema.validate(document, SCHEMA)
    assert (document["ended"], document["eta_s"]) == (how.split(maxsplit=1)[0], 0.0)


@pytest.mark.parametrize(
    "end",
    [
        "validation took 3 s\n",  # that a log grows no more proves nothing
        "Training completed: False\n",
        "Training completed.\n" + steps(0.5, 61, 70),  # of one stage of several
        f"{CANCELLED} ***\n" + steps(0.5, 61, 70),  # and started again
        "Epoch 1 training completed.\n",
        "Epoch 3: training finished, validating\n",
        "Fold 1 training finished.\n",
        "Pre-training finished, starting fine-tuning\n",
        "Training finished warmup phase\n",
        "Training completed: 6%\n",
        "Training done for epoch 0 in 31.2 s\n",
        "training complete (stage 1 of 3)\n",
        "VAE training finished, starting diffusion\n",
        "Training finished. Total epochs so far: 1\n",
        "Training complete for client 3, waiting for other clients\n",
        "training finished on fold 1\n",
        "EarlyStopping counter 1 of 5, would be stopping early\n",
        "Fold 1: early stopping at epoch 14\n",
        "Early stopping triggered.\nFold 1 training finished.\n",
        "Training completed.\nStarting fold 2/5\n",
        "Training completed.\nStarting training run 2 of 4\n",
        "Training completed.\nvalidating 2/100\n",
        "`Trainer.fit` stopped: `max_epochs=10` reached.\nStarting fold 2/5\n",
    ],
)
def test_a_run_that_goes_on_has_time_left(cli: Cli, log: Path, end: str) -> None:
    log.write_text(log.read_text() + end)
    assert cli("track", str(log)).out.splitlines()[1].endswith(" left")
    assert json.loads(cli("track", str(log), "--json").out)["ended"] is None


def test_epochs_counted_from_zero_are_over_with_the_last_one(cli: Cli, tmp_path: Path) -> None:
    log, line = tmp_path / "job.out", "[Epoch {}] train=0.99 loss=0.003 time: 56.25\n"
    epochs = [line.format(n) for n in range(10)]
    log.write_text("Namespace(num_epochs=10)\n" + "".join(epochs[:9]))
    assert cli("track", str(log)).out.splitlines()[1].endswith("56 s left")
    log.write_text("Namespace(num_epochs=10)\n" + "".join(epochs))
    assert cli("track", str(log)).out.splitlines()[1].endswith("finished (line 11)")


def test_the_answer_is_in_three_lines(cli: Cli, log: Path) -> None:
    done = cli("track", str(log))

    assert done.code == 0
    assert done.out.splitlines() == [
        "iteration 60 of 1,000 · loss 2.4",
        "500 ms per step, 7 min 50 s left",
        "based on 60 readings, stated in the log, up to line 61",
    ]


def test_a_loss_that_is_no_number_has_a_line_and_a_field(cli: Cli, log: Path) -> None:
    log.write_text(re.sub(r"loss 2\.[0-4]\d", "loss nan", steps(0.5, first=1, last=60)))
    lines = cli("track", str(log)).out.splitlines()
    document = json.loads(cli("track", str(log), "--json").out)

    assert lines[0] == "iteration 60 of 1,000 · loss NaN"
    assert lines[3].startswith("warning: the loss is NaN, since iteration 51 at the latest; ")
    assert (document["loss"], document["loss_state"]) == (None, "nan")
    assert document["loss_state_since"] == 51


def test_a_rate_that_is_not_believed_is_said_to_be_none(cli: Cli, log: Path) -> None:
    clocks = [f"2026-01-01 00:{n:02d}:00 step {n * 100} loss 2.5 5.0 it/s" for n in range(1, 40)]
    log.write_text("\n".join([*clocks, ""]))
    note = (
        "the rate stated is 5 steps a second; the timestamps, which are even and cover all steps, "
        "show another one and are believed"
    )

    assert f"note: {note}" in cli("track", str(log)).out.splitlines()
    assert json.loads(cli("track", str(log), "--json").out)["notes"] == [note]


def test_the_document_fits_its_schema(cli: Cli, log: Path, tmp_path: Path) -> None:
    document = json.loads(cli("track", str(log), "--json").out)

    jsonschema.validate(document, SCHEMA)
    assert set(document) == set(SCHEMA["properties"])
    assert document["step_time_s"] == 0.5
    assert document["lines"][0] == 61
    empty = tmp_path / "empty.out"
    empty.write_text("nothing to see\n")
    jsonschema.validate(json.loads(cli("track", str(empty), "--json").out), SCHEMA)


def test_what_the_log_does_not_say_is_not_said(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("".join(f"step {n} loss 0.5\n" for n in range(50)))
    done = cli("track", str(path))

    assert done.code == 0
    assert "step time unknown" in done.out
    assert cli("track", str(path), "--fail-on-abstain").code == 4


def test_packed_piped_and_per_rank_logs(
    cli: Cli, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "job.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    (ranks / "rank_0.log").write_text("starting\n")
    (ranks / "rank_1.log").write_text(steps(0.5))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))

    for path in (str(packed), str(ranks), "-"):
        document = json.loads(cli("track", path, "--json").out)
        assert document["step_time_s"] == 0.5
    assert json.loads(cli("track", str(ranks), "--json").out)["file"].endswith("rank_1.log")


def test_a_damaged_log_is_read_as_far_as_it_goes(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.gz"
    path.write_bytes(gzip.compress(steps(0.5).encode())[:-12])
    done = cli("track", str(path))

    assert "500 ms per step" in done.out
    assert "damaged" in done.err


def test_two_logs_are_compared(cli: Cli, log: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.out"
    slow.write_text(steps(1.0))
    done = cli("track", "--compare", str(log), str(slow))

    assert done.out.splitlines()[0] == "slowed down: throughput -50.0 %"
    document = json.loads(cli("track", "--compare", str(log), str(slow), "--json").out)
    assert (document["ratio"], document["slowed"]) == (0.5, True)
    slow.write_text(steps(1.0, last=10))
    assert "warming up" in cli("track", "--compare", str(log), str(slow)).out


def test_only_later_lines(cli: Cli, log: Path) -> None:
    size = log.stat().st_size
    with log.open("a") as stream:
        stream.write(steps(2.0, 61, 100))

    done = cli("track", str(log), "--since", str(size), "--json")
    assert json.loads(done.out)["step_time_s"] == 2.0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["track"], 2, "give one LOG, or two logs with --compare"),
        (["track", "nothing.out"], 3, "does not exist"),
        (["track", "-", "--follow"], 2, "--follow takes one file"),
    ],
)
def test_a_wrong_call_is_explained(cli: Cli, arguments: list[str], code: int, message: str) -> None:
    done = cli(*arguments)

    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


def test_what_is_no_log_is_refused(cli: Cli, tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("binary", os.urandom(4000))):
        path = tmp_path / name
        path.write_bytes(content)
        done = cli("track", str(path))
        assert (done.code, done.out) == (3, "")
        assert "cannot be read as a log" in done.err


def test_a_log_cannot_control_the_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job\x1b[31m.out"
    path.write_text("\x1b]0;owned\x07" + steps(0.5).replace("loss", "\x1b[2Jloss"))
    done = cli("track", str(path))

    assert "500 ms per step" in done.out
    assert "\x1b" not in done.out + done.err


def test_following_answers_anew_as_the_log_grows(log: Path) -> None:
    command = [sys.executable, "-m", "schedmate", "track", str(log), "--follow", "--json"]
    running = subprocess.Popen(
        [*command, "--every", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with ended_in_time(running):
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["iteration"] == 60
        log.rename(log.with_suffix(".1"))
        log.write_text(steps(0.5, 61, 150))
        assert json.loads(running.stdout.readline())["iteration"] == 150
        running.send_signal(signal.SIGINT)
        assert running.wait(LONG_S) == 130


def test_a_model_that_fails_is_not_asked_at_every_growth(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    counts = "".join(f"step {n}/900 | loss 2.5 | qux {n * 7} zap {n * 3}\n" for n in range(1, 99))
    log.write_text(counts)
    with serve(lambda _request: Raw(400, b'{"error": {"message": "no such thing"}}')) as server:
        command = [sys.executable, "-m", "schedmate", "track", str(log), "--follow", "--json"]
        model = ["--llm-base-url", server.url, "--model", "test-7B"]
        running = subprocess.Popen(
            [*command, "--every", "0.1", *model],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with ended_in_time(running):
            assert running.stdout is not None
            assert json.loads(running.stdout.readline())["iteration"] == 98
            asked = len(server.requests)
            for step in (110, 120, 130):
                with log.open("a") as file:
                    file.write(f"step {step}/900 | loss 2.5 | qux {step * 7} zap {step * 3}\n")
                assert json.loads(running.stdout.readline())["iteration"] == step
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=LONG_S)
    assert asked > 0
    assert len(server.requests) == asked
    assert said.count("the language model is not asked again, it failed") == 1


def test_large_rates_have_no_exponent_and_equal_bounds_are_left_out(cli: Cli, log: Path) -> None:
    log.write_text(
        "".join(f"step {n} loss 2.5 step_time 0.5 s tokens/s 30000\n" for n in range(1, 40))
    )

    assert cli("track", str(log)).out.splitlines()[1] == "500 ms per step, 30,000 tokens/s"


def test_a_log_that_counts_epochs_is_said_to_count_those(cli: Cli, log: Path) -> None:
    log.write_text("".join(f"Epoch {n}/10 - loss: 0.5\n" for n in range(1, 9)))

    assert "because the log counts epochs" in cli("track", str(log)).out
