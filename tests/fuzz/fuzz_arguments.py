"""Command lines that are right, for every command and every option that the program has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer.main


def argument_samples() -> list[bytes]:
    lines = (
        "analyze repo --gpus 8 --nodes 2 --gpu-type A100 --time-limit 36h --job-id 17 --json",
        "analyze repo --top-k 3 --threshold 0.5 --method mean --history h --record --json",
        "analyze repo -c python\\ train.py --mode static -o out.json --plain --fail-on-abstain",
        "track job.log --since 100 --batch-size 8 --json",
        "track --compare job.log job.log --json",
        "diagnose job.log --locator binary --window 200 --healthy job.log --json",
        "triage job.log --jobs 1 --ask 3 --json --ledger l.sqlite",
        "rules list --json",
        "rules show cuda-oom",
        "simulate t.csv --policy tiresias:threshold_gpu_s=7200 --cluster 2x4:A100@,1x8:T4 --json",
        "simulate t.csv --policy fifo --cluster 3x4 --estimator noisy:1 --seed 0,1 --json",
        "simulate t.csv --policy lucid --cluster 3x4 --node-mtbf 264d --failures bugs=1",
        (
            "simulate t.csv --policy fifo --cluster 3x4 --phases share=0.2,rise=50 --report r.html "
            "--gantt 0..3d"
        ),
        "simulate t.csv --policy fifo --cluster 3x4 --workloads lucid:recurrence=0.8,seed=1 --json",
        (
            "simulate t.csv --policy sjf+schedmate --cluster 3x4 --advisor-latency 5m "
            "--detection-rate 0.5"
        ),
        (
            "tune t.csv --policy tiresias --cluster 3x4 --at 10m --window 30d "
            "--try threshold_gpu_s=60,600 --most 2 --seed 1 --json"
        ),
        "traces show t.csv --json",
        "traces sample t.csv --jobs 5 --seed 1 -o s.csv",
        "traces synthesize venus --jobs 20 --seed 1 -o s.csv",
        "traces convert t.csv -o s.csv --map submit=submit_s,duration=duration_s:h,gpus=gpus",
        "policies --json",
        "history import jobs.csv --map model=model --prefix p --history h",
        "history list -n 5 --offset 1 --state COMPLETED --user ann --text x --history h --json",
        "history show 17 --history h",
        "history finish 17 --duration 2h --end 2024-01-01 --gpu-util 91 --history h",
        "llm stats --json",
        "config show --json",
    )
    return [
        b"\n".join(word.replace("\\ ", " ").encode() for word in re.split(r"(?<!\\) ", line))
        for line in lines
    ]


def options() -> list[tuple[tuple[str, ...], str]]:
    """Each command (its words, with arguments for files that are there) and an option of it."""
    from schedmate.cli import app

    return list(_walk(typer.main.get_command(app), ()))


_GIVEN = {
    "analyze": ("repo",),
    "track": ("job.log",),
    "diagnose": ("job.log",),
    "triage": ("job.log", "--jobs", "1"),
    "simulate": ("t.csv", "--policy", "fifo", "--cluster", "3x4"),
    "tune": ("t.csv", "--policy", "tiresias", "--cluster", "3x4", "--most", "2"),
    "explain": ("t.csv",),
    "history import": ("jobs.csv",),
    "history add": ("17", "model=x"),
    "history show": ("17",),
    "history finish": ("17", "--duration", "2h"),
    "rules show": ("cuda-oom",),
    "traces check": ("t.csv",),
    "traces convert": ("t.csv", "-o", "s.csv"),
    "traces sample": ("t.csv", "-o", "s.csv"),
    "traces synthesize": ("venus", "--jobs", "20", "-o", "s.csv"),
}
_LEFT_OUT = {"--follow", "--ray", "--install-completion", "--show-completion", "--llm-base-url"}
"""Options that wait for something, or reach for what is not on this machine."""
_NOT_TRIED = {"doctor", "serve", "slurm", "k8s", "ray"}
"""Commands that look at this machine, serve until they are ended, or reach for a cluster."""


def _walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    below = getattr(command, "commands", None)
    if below is not None:
        for name, inner in below.items():
            if name not in _NOT_TRIED:
                yield from _walk(inner, (*words, name))
        return
    given = (*words, *_GIVEN.get(" ".join(words), ()))
    for parameter in getattr(command, "params", ()):
        for option in parameter.opts:
            if option.startswith("--") and option not in _LEFT_OUT:
                yield given, option
