"""What is fuzzed: each target makes files of some bytes and runs the command line on them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fuzz_samples as samples
from fuzz_arguments import argument_samples
from fuzz_judge import ViolationError, command_line, environment, judge_json


@dataclass(frozen=True)
class Target:
    """`run(data, folder)` raises on a violation; `folder` is empty and the working directory."""

    name: str
    samples: Callable[[], Sequence[bytes]]
    run: Callable[[bytes, Path], None]
    short: int = 4
    """Inputs of the short run, half a second's worth at most."""


def _text(data: bytes) -> str:
    """Bytes as an argument, as a shell would hand them over."""
    return os.fsdecode(data.replace(b"\0", b""))


# Repositories


def _command(data: bytes, folder: Path) -> None:
    # which of the repositories is part of the input
    at = sum(data[:64]) if data else 0
    repo = samples.repositories()[at % len(samples.repositories())]
    command_line(["analyze", str(repo), "--json", "-c", _text(data)])


_MINIMAL = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"


def _script(data: bytes, folder: Path) -> None:
    (folder / "train.py").write_text(_MINIMAL)
    (folder / "run.sh").write_bytes(data)
    command_line(["analyze", ".", "--json", "-c", "bash run.sh 3 x"])


def _source(data: bytes, folder: Path) -> None:
    (folder / "train.py").write_bytes(data)
    command_line(["analyze", ".", "--json", "-c", "python train.py --epochs 3 --config c.yaml"])


_READS = """\
import json, tomllib, configparser, yaml, pathlib
from omegaconf import OmegaConf
name = {name!r}
if name.endswith("toml"):
    config = tomllib.load(open(name, "rb"))
elif name.endswith("ini"):
    config = configparser.ConfigParser()
    config.read(name)
elif name.endswith("json"):
    config = json.load(open(name))
else:
    config = OmegaConf.load(name)
def walk(tree, into={{}}):
    for key, value in tree.items():
        if isinstance(value, dict):
            walk(value)
        else:
            into[key] = value
    return into
flat = walk(config)
lr = float(config["lr"]) if "lr" in config else flat.get("lr")
for epoch in range(int(flat.get("epochs", 3))):
    print(f"{{epoch}} {{config}}", str(flat), json.dumps(flat))
"""


def _config(suffix: str) -> Callable[[bytes, Path], None]:
    def run(data: bytes, folder: Path) -> None:
        (folder / f"c.{suffix}").write_bytes(data)
        (folder / "train.py").write_text(_READS.format(name=f"c.{suffix}"))
        command_line(["analyze", ".", "--json", "-c", f"python train.py --config c.{suffix}"])

    return run


def _names(data: bytes, folder: Path) -> None:
    """Each line is the name of a file of a repository, a folder of logs and a command's word."""
    for number, name in enumerate(data.split(b"\n")[:30]):
        path = folder.joinpath(*os.fsdecode(name).split("/")[-3:])
        with contextlib.suppress(OSError, ValueError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(_MINIMAL if number % 2 else "KeyError: 'x'\nstep 1/3 2 s/it\n")
    command_line(["analyze", ".", "--json"])
    command_line(["analyze", "."])
    for name in data.split(b"\n")[:3]:
        word = _text(name)
        command_line(["analyze", ".", "--json", "-c", f"python '{word}' --config '{word}'"])
        if word and not word.startswith("-"):
            command_line(["diagnose", word, "--json"])
            command_line(["track", word, "--json"])
    command_line(["triage", ".", "--json", "--jobs", "1", "--out", "r.html", "--csv", "v.csv"])
    command_line(["diagnose", ".", "--json"])
    command_line(["track", ".", "--json"])


# Logs


def _log(data: bytes, folder: Path) -> None:
    (folder / "job.log").write_bytes(data)
    for command in ("track", "diagnose"):
        command_line([command, "job.log", "--json"])
        command_line([command, "job.log"])
    command_line(["diagnose", "job.log", "--node-logs", "job.log", "--json", "--exit-code"])


def _triage(data: bytes, folder: Path) -> None:
    """A list of jobs."""
    (folder / "jobs.csv").write_bytes(data)
    (folder / "a.log").write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    everything = ["--out", "r.html", "--csv", "v.csv", "--json", "--jobs", "1"]
    command_line(["triage", "jobs.csv", *everything])


def _triage_samples() -> list[bytes]:
    return [
        (
            b"log,job_id,duration,gpus,nodes,workload,state,user\n"
            b"a.log,1,2h,8,n[1-2],bert,FAILED,ann\n"
            b'a.log,2,1-00:00:00,0.5,"n1,n2",gpt,COMPLETED,bob\n'
        ),
    ]


# History and settings


def _history(data: bytes, folder: Path) -> None:
    (folder / "jobs").write_bytes(data)
    where = ["--history", "h"]
    command_line(["history", "import", "jobs", "--json", *where])
    if (folder / "h").exists():
        command_line(["history", "list", "--json", *where])
        command_line(["history", "list", *where])
        command_line(["history", "stats", "--json", *where])
        for line in command_line(["history", "export", *where]).splitlines():
            judge_json(line)
        repo = str(samples.repositories()[0])
        command_line(["analyze", repo, "--json", "--threshold", "-1", *where])


def _add(data: bytes, folder: Path) -> None:
    """A field of a job on each line."""
    fields = [_text(line) for line in data.split(b"\n") if line]
    command_line(["history", "add", "17", "--json", "--history", "h", "--", *fields])
    if (folder / "h").exists():
        command_line(["history", "list", "--json", "--history", "h"])
        command_line(["history", "show", "17", "--history", "h"])


def _add_samples() -> list[bytes]:
    return [
        b"model=resnet50\ndataset=imagenet\niters=90\niter_type=epoch\ngpus=8\nduration=7h30m\n",
        (
            b"state=FAILED\nsubmit_time=2024-01-01T00:00:00\nstart_time=1700000000\nend_time=1700000060"
            b"\ngpu_util=88.5\ngpu_mem_mb=1000\ntime_limit=36h\nnodes=2\nuser=ann\nname=x\ncommand=y"
        ),
        b"training_config.lr=1e-3\nmodel_config.n_layer=12\nbatch_size=256\nlaunch.gpus=3\n",
    ]


def _settings(data: bytes, folder: Path) -> None:
    home = folder / "config" / "schedmate"
    home.mkdir(parents=True)
    (home / "config.toml").write_bytes(data)
    with environment(XDG_CONFIG_HOME=str(folder / "config")):
        command_line(["config", "show", "--json"])


# Traces and policies


def _trace(data: bytes, folder: Path) -> None:
    from schedmate.schedulers.registry import BUNDLED

    (folder / "t.csv").write_bytes(data)
    command_line(["traces", "check", "t.csv", "--json"], codes=(0, 2, 3))
    policies = [name for name in BUNDLED if "+" not in name]
    simulate = ["simulate", "t.csv", "--cluster", "3x4", "--json", "--policy"]
    try:
        command_line([*simulate, ",".join(policies)], codes=(0,))
    except ViolationError:  # one at a time: one that refuses a trace hides the others
        for policy in policies:
            command_line([*simulate, policy])
    command_line(
        [
            "simulate",
            "t.csv",
            "--policy",
            "fifo,lucid+schedmate,sjf+schedmate",
            "--cluster",
            "3x4",
            "--estimator",
            "noisy:1",
            "--out",
            "o",
        ]
    )


# Servers


def _reply(data: bytes, folder: Path) -> None:
    url = _server()
    _replies[url] = data
    (folder / "train.py").write_text("epochs = 3\nload_dataset('cifar10')\n")
    arguments = ["analyze", ".", "--json", "-c", "python train.py", "--llm-base-url", url]
    with environment(SCHEDMATE_LLM_CACHE="false", SCHEDMATE_LLM_TIMEOUT_S="5"):
        command_line([*arguments, "--model", "m"])


_replies: dict[str, bytes] = {}


@cache
def _server() -> str:
    """The address of a server on this machine that sends the bytes of the present input."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = _replies[url]
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name that http.server asks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return url


# Arguments


def _arguments(data: bytes, folder: Path) -> None:
    """An argument on each line, for files that are as they should be."""
    for name, content in (
        ("job.log", samples.logs()[0]),
        ("t.csv", samples.traces()[0]),
        ("jobs.csv", samples.histories()[2]),
    ):
        (folder / name).write_bytes(content)
    shutil.copytree(samples.repositories()[0], folder / "repo")
    arguments = [_text(line) for line in data.split(b"\n")]
    refused = ("--follow", "-f", "--ray", "--install-completion", "--llm-base-url", "doctor")
    if not any(one.startswith(refused) for one in arguments) and "-f" not in arguments:
        # answers here: that a policy cannot be run to the end (1), that no cluster answers (7)
        command_line(arguments, codes=(0, 1, 2, 3, 4, 5, 6, 7))


TARGETS: dict[str, Target] = {
    one.name: one
    for one in (
        Target("command", samples.commands, _command, 3),
        Target("script", lambda: samples.files((".sh", ".sbatch", ".slurm")), _script),
        Target("source", lambda: samples.files((".py",)), _source),
        Target("yaml", lambda: samples.files((".yaml", ".yml")), _config("yaml")),
        Target("toml", lambda: [*samples.files((".toml",)), *samples.settings()], _config("toml")),
        Target("ini", lambda: samples.files((".ini", ".cfg")), _config("ini")),
        Target("json", lambda: samples.files((".json",)), _config("json")),
        Target("jsonnet", lambda: samples.files((".jsonnet", ".libsonnet")), _config("jsonnet")),
        Target("hocon", lambda: samples.files((".conf", ".hocon")), _config("conf")),
        Target("gin", lambda: samples.files((".gin",)), _config("gin")),
        Target("names", lambda: _NAMES, _names, 1),
        Target("log", samples.logs, _log, 1),
        Target("triage", _triage_samples, _triage),
        Target("history", samples.histories, _history, 1),
        Target("add", _add_samples, _add),
        Target("settings", samples.settings, _settings),
        Target("trace", samples.traces, _trace, 1),
        Target("reply", samples.replies, _reply, 1),
        Target("arguments", argument_samples, _arguments, 3),
    )
}
"""Every target by its name."""

_NAMES = [
    b"train.py\nconfigs/a.yaml\nrun.sh\nREADME.md\n",
    b"rank_0.log\nrank_1.log\nmodel \xc3\xa9.py\nlogs/slurm-17.out\n",
    b"train\xff.py\nlog\xfe.txt\nd\xed\xa0\x80/x.log\n",
]


def run(target: Target, data: bytes, folder: Path) -> None:
    """Run a target on an input in an empty folder of its own; raises `ViolationError`."""
    home = Path.cwd()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        target.run(data, folder)
    finally:
        os.chdir(home)
        shutil.rmtree(os.fsencode(folder), ignore_errors=True)
