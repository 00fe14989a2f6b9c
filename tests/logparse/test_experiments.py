"""Runs as experiment trackers keep them, and what `track` and `history add --from` make of them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from schedmate.base.errors import InputError
from schedmate.logparse.experiments import find_runs, kind_of, read_runs

START = 1_700_000_000
WANDB = Path(__file__).parent.parent / "fixtures" / "wandb" / "run-1jovzjjc.wandb"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def trainer_state(folder: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {"epoch": n / 10, "loss": 2 - n / 100, "step": 10 * n} for n in range(1, 31)
    ]
    rows.append({"epoch": 3.0, "step": 300, "train_runtime": 1234.5})
    document = {"max_steps": 300, "num_train_epochs": 3, "train_batch_size": 8, "log_history": rows}
    write(folder / "checkpoint-300" / "trainer_state.json", json.dumps(document))
    return folder


def wandb_run(folder: Path) -> Path:
    files = folder / "offline-run-20231114_221320-abc123" / "files"
    summary = {"_runtime": 3600.5, "_step": 999, "_timestamp": START + 3600, "train/loss": 0.5}
    write(files / "wandb-summary.json", json.dumps(summary))
    settings = {"learning_rate": 0.001, "model_name": "resnet50", "dataset": "imagenet"}
    lines = [f"{name}:\n  desc: null\n  value: {value}\n" for name, value in settings.items()]
    write(files / "config.yaml", "wandb_version: 1\n" + "".join(lines) + "epochs: {value: 90}\n")
    about = {"program": "train.py", "args": ["--lr", "1"], "gpu": "A100", "gpu_count": 8}
    write(files / "wandb-metadata.json", json.dumps(about))
    return files.parent


def wandb_binary(folder: Path) -> Path:
    pytest.importorskip("google.protobuf")
    return Path(shutil.copy(WANDB, folder))


def mlflow_run(folder: Path) -> Path:
    run = folder / "0" / "0123abcd"
    ended = f"start_time: {START}000\nend_time: {START + 3600}000\nstatus: 3\n"
    write(run / "meta.yaml", f"run_id: 0123abcd\n{ended}")
    for name, value in {"model": "resnet18", "dataset": "cifar10", "max_steps": 1000}.items():
        write(run / "params" / name, str(value))
    points = [f"{(START + n * 36) * 1000} {2 - n / 100} {n * 10}\n" for n in range(1, 101)]
    write(run / "metrics" / "train_loss", "".join(points))
    return run


def mlflow_database(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.executescript(
            "CREATE TABLE runs (run_uuid, status, start_time, end_time, user_id, lifecycle_stage);"
            "CREATE TABLE params (run_uuid, key, value);"
            "CREATE TABLE metrics (run_uuid, key, value, step, timestamp);"
            "INSERT INTO params VALUES ('77', 'model', 'bert'), ('77', 'lr', '0.1');"
            f"INSERT INTO runs VALUES ('77', 'FINISHED', {START}000, {START + 60}000, 'a', "
            "'active');"
            f"INSERT INTO metrics VALUES ('77', 'loss', 0.5, 10, {START + 30}000);"
        )
    return folder / "mlflow.db"


def lightning(folder: Path) -> Path:
    run = folder / "lightning_logs" / "version_0"
    write(run / "metrics.csv", "epoch,step,train_loss,val_loss\n0,49,1.2,\n0,99,,1.1\n1,149,0.9,\n")
    write(run / "hparams.yaml", "model: unet\nlr: 0.1\n")
    return run


def keras(folder: Path) -> Path:
    return write(folder / "training.csv", "epoch,accuracy,loss\n0,0.5,1.5\n1,0.6,1.25\n")


def json_lines(folder: Path) -> Path:
    rows = [
        json.dumps({"step": n, "loss": 1 / n, "timestamp": START + 2 * n}) for n in range(1, 21)
    ]
    return write(folder / "metrics.jsonl", "\n".join(rows) + '\n{"step": 21, "lo')


def tensorboard_run(folder: Path) -> Path:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "exp1"))
    for n in range(1, 51):
        values = [
            Summary.Value(tag="train/loss", simple_value=2 - n / 100),
            Summary.Value(tag="eval/accuracy", simple_value=n / 100),
        ]
        event = Event(wall_time=START + 2 * n, step=10 * n, summary=Summary(value=values))
        writer.add_event(event)
    writer.close()
    return folder / "exp1"


CASES: dict[Callable[[Path], Path], tuple[str, dict[str, Any]]] = {
    trainer_state: ("trainer_state", {"iteration": 300, "total_iterations": 300, "loss": 1.7}),
    wandb_run: ("wandb", {"iteration": 999, "loss": 0.5}),
    wandb_binary: ("wandb", {"iteration": 300, "total_iterations": 300, "loss": 1.0}),
    mlflow_run: ("mlflow", {"iteration": 1000, "total_iterations": 1000, "step_time_s": 3.6}),
    lightning: ("csv", {"iteration": 149, "epoch": 1, "loss": 0.9, "step_time_s": None}),
    keras: ("csv", {"epoch": 1, "loss": 1.25, "step_time_s": None}),
    json_lines: ("jsonl", {"iteration": 20, "loss": 0.05, "step_time_s": 2}),
    tensorboard_run: ("tensorboard", {"iteration": 500, "loss": 1.5, "step_time_s": 0.2}),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_formats(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path, (kind, expected) = make(tmp_path), CASES[make]
    assert kind_of(path) == kind
    (run,) = read_runs(path)
    progress = run.progress()
    shown = {name: getattr(progress, name) for name in expected}
    assert shown == pytest.approx(expected)


def test_a_database_of_mlflow(tmp_path: Path) -> None:
    (run,) = read_runs(mlflow_database(tmp_path))
    assert run.duration_s() == (60, "from its start to its end")
    assert (run.state, run.setting("training_config.lr")) == ("COMPLETED", 0.1)
    with pytest.raises(InputError, match="no database of MLflow"):
        read_runs(write(tmp_path / "other" / "mlflow.db", "text"))


def test_a_folder_of_runs_follows_no_links(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    made = [mlflow_run(runs / "mlruns"), wandb_run(runs / "wandb"), lightning(runs)]
    (runs / "link").symlink_to(wandb_run(tmp_path / "elsewhere"))
    assert find_runs(runs) == sorted(made)
    with pytest.raises(InputError, match="no log"):
        read_runs(write(tmp_path / "empty" / "README.md", "loss").parent)


def test_a_run_of_wandb_in_full(tmp_path: Path, cli: Cli) -> None:
    """What W&B itself wrote offline, with a record longer than a block; whole, cut, damaged."""
    file = wandb_binary(tmp_path)
    (run,) = read_runs(tmp_path)
    assert (run.state, run.user, run.command) == ("COMPLETED", "ada", "python train.py --lr 0.001")
    assert len(run.points) == 10
    assert {point.loss for point in run.points} == {2 - n / 10 for n in range(1, 11)}
    assert run.setting("training_config.lr") == 0.001
    found = cli("history", "add", "--from", str(file), "--history", str(tmp_path / "h"))
    assert "added 1jovzjjc: COMPLETED" in found.err

    content = WANDB.read_bytes()
    file.write_bytes(content[:-700])
    (cut,) = read_runs(file)
    assert (cut.state, cut.points[-1].step) == (None, 240)
    file.write_bytes(content[:36_000] + b"?" + content[36_001:])
    damaged = cli("track", str(file))
    assert (damaged.code, "is damaged at byte" in damaged.err) == (3, True)
    file.write_bytes(b"text")
    assert "not a run of W&B" in cli("track", str(file)).err


def test_runs_become_jobs(tmp_path: Path, cli: Cli) -> None:
    """Of a folder of runs, those that state a run time and what they trained."""
    runs, history = tmp_path / "runs", str(tmp_path / "history")
    mlflow_run(runs / "mlruns"), wandb_run(runs / "wandb"), lightning(runs)
    found = cli("history", "add", "--from", str(runs), "--history", history, "--json")
    assert found.code == 0, found.err
    jobs = {job["job_id"]: job for job in json.loads(found.out)["jobs"]}
    assert {name: job["duration_s"] for name, job in jobs.items()} == {
        "0123abcd": 3600,
        "abc123": 3600.5,
    }
    assert jobs["abc123"]["launch"]["gpus"] == 8
    assert jobs["abc123"]["command"] == "python train.py --lr 1"
    training = jobs["abc123"]["metadata"]["training_config"]
    assert (training["iters"], training["iter_type"], training["lr"]) == (90, "epoch", 0.001)
    assert "version_0/metrics.csv does not say how long it took" in found.err
    tracked = cli("track", str(runs / "mlruns" / "0" / "0123abcd"), "--json")
    assert json.loads(tracked.out)["eta_s"] == 0


def test_one_finished_run_gives_the_next_job_its_estimate(tmp_path: Path, cli: Cli) -> None:
    repo, history = tmp_path / "repo", ("--history", str(tmp_path / "history"))
    code = (
        "from transformers import Trainer, TrainingArguments, AutoModel\n"
        "from datasets import load_dataset\n"
        "data = load_dataset('imdb')\n"
        "args = TrainingArguments(output_dir='o', max_steps=300)\n"
        "Trainer(AutoModel.from_pretrained('gpt2'), args, train_dataset=data['train']).train()\n"
    )
    write(repo / "train.py", code)
    job = ("--command", "python train.py")
    before = cli("analyze", str(repo), *job, *history).out
    offered = before.splitlines()[-1]
    assert offered.lstrip().startswith(f"schedmate history add --from RUN --repo {repo} --command")
    run = str(trainer_state(tmp_path / "out"))
    added = cli("history", "add", "--from", run, "--repo", str(repo), *job, *history)
    assert "added out: COMPLETED, ran 20 min 34 s (run time as the run states it)" in added.err
    after = cli("analyze", str(repo), *job, *history).out
    assert after.splitlines()[1].startswith("run time about 20 min")
    assert "history add --from" not in after


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
def test_a_run_that_ends_before_its_last_step_is_no_whole_one(
    name: str, tmp_path: Path, cli: Cli
) -> None:
    rows = [{"step": n, "loss": 0.5, "elapsed": 3 * n, "max_steps": 2000} for n in (1, 500, 990)]
    texts = [json.dumps(row) for row in rows]
    if name.endswith(".csv"):
        texts = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    run = write(tmp_path / name, "\n".join(texts) + "\n")
    fields = ("model=gpt2", "dataset=imdb", "--history", str(tmp_path / "h"))
    found = cli("history", "add", "--from", str(run), *fields)
    assert "added run: CANCELLED, ran at least 49 min 30 s" in found.err
    assert "its run time is a lower bound" in found.err
    followed = cli("track", str(run), "--json")
    assert json.loads(followed.out)["total_iterations"] == 2000
    assert "hardly" not in followed.err


@pytest.mark.parametrize(
    ("ending", "state", "told"),
    [
        ("", "COMPLETED", "from the first to the last time in the log"),
        ("Traceback (most recent call last):\nKeyError: 'x'\n", "FAILED", "lower bound"),
        (
            "Traceback (most recent call last):\nKeyError: 'y'\n",
            "FAILED",
            "50 of 100 iterations: at this pace all would take 1 h 38 min",
        ),
    ],
)
def test_a_log_becomes_a_job(ending: str, state: str, told: str, tmp_path: Path, cli: Cli) -> None:
    total = 100 if "pace" in told else 50
    lines = [f"2026-03-02 08:{n:02d}:00 step {n}/{total} loss 1.5\n" for n in range(1, 51)]
    log = write(tmp_path / "job-7.out", "".join(lines) + ending)
    fields = ("model=resnet50", "dataset=imagenet", "gpus=4")
    found = cli("history", "add", "--from", str(log), "--history", str(tmp_path / "h"), *fields)
    assert f"added job-7: {state}, ran " in found.err
    assert told in found.err
    assert "49 min 00 s" in found.err
    assert "launch.gpus = 4" in found.out


def test_a_run_is_as_long_as_its_log_where_nothing_states_it(tmp_path: Path, cli: Cli) -> None:
    lines = [f"iter_dt 92.0ms; iter {n}: train loss 1.5\n" for n in range(0, 1001, 10)]
    log = write(tmp_path / "job-7.out", "".join(lines))
    fields = ("model=gpt2", "dataset=imdb", "--history", str(tmp_path / "h"))
    found = cli("history", "add", "--from", str(log), *fields)
    assert "metadata.training_config.iters = 1000\n" in found.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--repo", "."), "--repo and --command say what the run of --from was"),
        (("17",), "give the job's id and its fields"),
        (("--from", "{}", "-c", "python train.py"), "name its folder with --repo"),
        (("--from", "{}"), "does not say what it trained"),
        (("--from", "{}/nothing"), "nothing"),
        (("--from", "{}/../binary"), "not a run of W&B that can be read"),
        (("--from", "{}/../aim"), "Aim's store is not read"),
    ],
)
def test_what_is_missing_is_said(
    words: tuple[str, ...], told: str, tmp_path: Path, cli: Cli
) -> None:
    run = str(trainer_state(tmp_path / "out"))
    place = ("--history", str(tmp_path / "history"))
    write(tmp_path / "binary" / "offline-run-1-a" / "run-a.wandb", ":W&B")
    (tmp_path / "aim" / ".aim").mkdir(parents=True)
    found = cli("history", "add", *(word.format(run) for word in words), *place)
    assert found.code in (2, 3)
    assert told in found.err
