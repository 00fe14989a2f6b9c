"""Well-formed inputs of each kind, from the fixtures, examples and rules of this repository."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import yaml

TESTS = Path(__file__).parent.parent
REPOS = TESTS / "fixtures" / "repos"
EXAMPLES = TESTS.parent / "examples"
PACKAGE = TESTS.parent / "schedmate"
_LONGEST = 20_000


@cache
def repositories() -> list[Path]:
    """The fixture repositories that have a launch command."""
    return sorted(path.parent for path in REPOS.glob("*/*/case.yaml"))


@cache
def command_of(repo: Path) -> str:
    """The launch command that a fixture repository expects."""
    case = yaml.safe_load((repo / "case.yaml").read_text(encoding="utf-8"))
    return str(case.get("command") or "python train.py")


def commands() -> list[bytes]:
    """Launch commands: those of the fixtures and of common launchers."""
    launchers = (
        "torchrun --nnodes=2 --nproc_per_node 8 --rdzv_endpoint=$H:29500 train.py --lr 1e-3",
        "srun -N 2 --gres=gpu:a100:4 --time=1-12:00:00 python -u train.py epochs=3 ++lr=0.1",
        "cd scripts && CUDA_VISIBLE_DEVICES=0,1,2-5 bash run.sh 10 || exit 1",
        "for lr in {1..3}; do accelerate launch --num_processes $((2*4)) train.py --lr $lr; done",
        "deepspeed --include=node-[1-3]:0,1@node2 --num_gpus 8 train.py --deepspeed ds.json",
        "docker run --gpus '\"device=0,1\"' image bash -c 'python train.py --epochs=$(cat n)'",
        "mpirun -np 16 -x A=1 python train.py; make train N=3; conda run -n x python train.py",
        'env EPOCHS=${EPOCHS:-90} sh -c "python train.py --epochs $EPOCHS" > log 2>&1 &',
        "python -c 'import train; train.main(epochs=3)'",
        "sbatch --array=0-15%4 --nodes=2 --wrap 'python train.py --seed $SLURM_ARRAY_TASK_ID'",
    )
    return [*(one.encode() for one in launchers), *(command_of(r).encode() for r in repositories())]


@cache
def files(suffixes: tuple[str, ...]) -> list[bytes]:
    """The fixtures' files with one of these suffixes."""
    found = sorted(p for p in REPOS.rglob("*") if p.suffix in suffixes and p.name != "case.yaml")
    return [path.read_bytes()[:_LONGEST] for path in found if path.stat().st_size]


@cache
def log_lines() -> tuple[bytes, ...]:
    """Public lines that progress patterns and failure rules give as their examples."""
    lines: list[str] = []
    for path in sorted((PACKAGE / "logparse").rglob("*.yaml")):
        _collect(yaml.safe_load(path.read_text(encoding="utf-8")), lines)
    return tuple(line.encode() for line in lines)


def _collect(value: object, lines: list[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("example", "examples", "text"):
                texts = item if isinstance(item, list) else [item]
                lines.extend(text for text in texts if isinstance(text, str))
            _collect(item, lines)
    elif isinstance(value, list):
        for item in value:
            _collect(item, lines)


@cache
def logs() -> list[bytes]:
    """Logs put together of such lines: progress under timestamps, ranks, bars, then a failure."""
    lines = log_lines()
    steps = [
        b"".join(
            b"2024-03-01 10:%02d:%02d,123 [rank%d] step %d/5000 loss: %.3f lr 1e-4 %.1f s/it\n"
            % (n // 60, n % 60, n % 4, 10 * n, 3 - n / 50, 1.5)
            for n in range(40)
        ),
        b"".join(
            b"\rEpoch 1/3: %3d%%|###  | %d/400 [00:%02d<01:00, 2.31it/s]" % (n, 4 * n, n % 60)
            for n in range(50)
        ),
        b"".join(
            b'{"step": %d, "time": %.1f, "loss": 2.5, "samples/s": 123.4}\n' % (n, n * 1.1)
            for n in range(40)
        ),
        b"epoch iter loss time\n" + b"".join(b"1 %d 2.1 0.41\n" % n for n in range(40)),
        (
            b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
            b"KeyError: 'x'\nsrun: error: node-7: task 3: Exited with exit code 1\n"
        ),
    ]
    mixed = [b"\n".join(lines[at : at + 12]) + b"\n" for at in range(0, len(lines), 12)]
    return [*steps, *mixed]


def histories() -> list[bytes]:
    """What `history import` reads: an export, CSV, both forms of sacct."""
    jsonl = (EXAMPLES / "history.jsonl").read_bytes().splitlines(keepends=True)
    sacct = {
        "jobs": [
            {
                "job_id": 17,
                "name": "train",
                "user": "ann",
                "state": {"current": ["COMPLETED"], "reason": "None"},
                "time": {
                    "start": 1.7e9,
                    "end": 1.7e9 + 60,
                    "submission": 1.7e9,
                    "elapsed": 60,
                    "limit": {"set": True, "infinite": False, "number": 60},
                },
                "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "count": 8}]},
                "array": {"job_id": 16, "task_id": {"set": True, "number": 3}},
                "het": {"job_id": 0, "job_offset": {"set": False, "number": 0}},
                "allocation_nodes": 2,
                "nodes": "n[1-2]",
                "steps": [],
            }
        ]
    }
    return [
        b"".join(jsonl[:4]),
        b"".join(jsonl[4:7]),
        (
            b"job_id,model,dataset,iters,iter_type,gpus,duration,state,submit\n"
            b"1,resnet50,imagenet,90,epoch,8,7h30m,COMPLETED,2024-01-01T00:00:00\n"
            b"2,gpt2,openwebtext,1000,step,16,90m,FAILED,1700000000\n"
        ),
        (
            b"JobID|JobName|User|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|NNodes|AveRSS\n"
            b"17|train|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T02:00:00|"
            b"1-01:59:00|2-00:00:00|billing=8,cpu=64,gres/gpu=8,node=2|2|3.5G\n"
            b"17.0|train||COMPLETED|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T02:00:00|"
            b"01:59:00||cpu=64,gres/gpu:a100=8|2|120K\n"
        ),
        json.dumps(sacct).encode(),
    ]


def traces() -> list[bytes]:
    """Small traces of several formats."""
    return [
        b"job_id,submit_s,duration_s,gpus,user,vc,name,state,cpus,priority,time_limit_s,gpu_util_pct,"
        b"gmem_util_pct,gmem_mb,amp\n"
        + b"".join(
            b"j%d,%d,%d,%d,u%d,,train%d,COMPLETED,4,0,7200,%d,30,9000,1\n"
            % (n, 30 * n, 100 + 37 * n % 900, (1, 2, 1, 4, 8)[n % 5], n % 3, n % 4, 20 + n)
            for n in range(14)
        ),
        b"job_id,submit_s,duration_s,gpus,model,dataset,iterations,iter_type,batchsize,lr,task\n"
        + b"".join(
            b"j%d,%d,%d,%d,resnet50,imagenet,90,epoch,256,0.1,CV\n" % (n, 20 * n, 60 * n + 5, 1)
            for n in range(8)
        ),
        (
            b"JobID|User|Submit|Start|End|State|AllocTRES|Timelimit\n"
            b"1|a|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T02:00:00|COMPLETED|"
            b"cpu=4,gres/gpu=2|01:00:00\n"
            b"2|b|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T02:00:00|FAILED|"
            b"cpu=4,gres/gpu:a100=1|1-00:00:00\n"
        ),
    ]


def settings() -> list[bytes]:
    """Settings files."""
    return [
        b'history = "h"\ntop_k = 5\nthreshold = 0.8\nmethod = "weighted"\nbudget_s = 3.5\n',
        (
            b'mode = "static"\nllm_timeout_s = 5\nllm_max_tokens = 128\ndeadline_s = 1e-3\n'
            b'trajectories = "~/t"\n'
        ),
    ]


def replies() -> list[bytes]:
    """What a language model's server sends."""
    findings = {
        "findings": [
            {"field": "training_config.iters", "value": "3", "file": "train.py", "line": 1},
            {"field": "dataset_config.train", "value": "cifar10", "file": "train.py", "line": 2},
        ]
    }

    def reply(**message: object) -> bytes:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return json.dumps({**document, "choices": [choice], "usage": usage}).encode()

    call = {"name": "file_read", "arguments": json.dumps({"path": "train.py", "start": 1})}
    return [
        reply(content=json.dumps(findings)),
        reply(content=None, tool_calls=[{"id": "1", "type": "function", "function": call}]),
        reply(content="```json\n" + json.dumps(findings) + "\n```"),
    ]
