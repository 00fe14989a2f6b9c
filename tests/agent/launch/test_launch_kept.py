"""Jobs that are described in files, and programs that wrap commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedmate.agent.launch.plan import LaunchPlan
from schedmate.base.errors import InputError

Plan = Callable[..., LaunchPlan]

TASKS = """
[tool.hatch.envs.default.scripts]
train = "python train.py"
"""
KUBERNETES = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: fit}
spec:
  pytorchReplicaSpecs:
    Master: &role
      replicas: 1
      template:
        spec:
          initContainers:
          - {name: prepare, command: [python, prepare.py]}
          containers:
          - name: pytorch
            image: lab/train
            command: ["python", "train.py"]
            args: ["--lr", "9"]
            env: [{name: SEED, value: "1"}]
            resources: {limits: {nvidia.com/gpu: 4}}
    Worker: {<<: *role, replicas: 3}
"""
SKY = """
resources: {accelerators: A100:8}
num_nodes: 2
envs:
  LR: 10
setup: python prepare.py
run: |
  cd ~/sky_workdir
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
    train.py --lr $LR
"""
DSTACK = """
type: task
env:
  - LR=11
commands:
  - pip install -r requirements.txt
  - python train.py --lr $LR
resources: {gpu: 80GB:4}
"""
COMPOSE = """
services:
  board: {command: tensorboard --logdir runs}
  trainer:
    environment: {LR: 12}
    command: python train.py --lr 12
"""
RUNX = """
CMD: "torchrun --nproc_per_node=8 train.py"
HPARAMS: [
  {lr: [15, 16], amp: true, ema: false, crop: "512,512", RUNX.TAG: "x"},
  {lr: 17},
]
"""
CONDOR = """
# submitted from the root
universe = vanilla
Executable = /usr/bin/env
arguments = "python train.py --lr $(lr) \\
    --name $(name:plain)"
RequestGPUs = 3
if defined other
  request_memory = 8
endif
lr = 18
queue 2
"""
FILES = {
    "experiments/a.yml": RUNX,
    "jobs/a.sub": CONDOR,
    "jobs/b.sub": "executable = train.py\narguments = --lr $(lr)\nqueue lr in (18 19)\n",
    "k8s/job.yaml": KUBERNETES,
    "task.yaml": SKY,
    ".dstack.yml": DSTACK,
    "docker-compose.yml": COMPOSE,
    "pkg/train.py": "import torch\n",
    "pkg/__init__.py": "",
    "prepare.py": "import torch\n",
}


def words(plan: LaunchPlan) -> list[object]:
    return [value.plain() for value in plan.argv]


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("pixi run python train.py", []),
        (
            "python -m runx.runx experiments/a.yml -i",
            ["--lr", "15", "--amp", "--crop", "512,512"],
        ),
        ("condor_submit jobs/a.sub", ["--lr", "18", "--name", "plain"]),
        (
            "condor_submit -batch-name x jobs/a.sub name=mine -append lr=20",
            ["--lr", "20", "--name", "mine"],
        ),
        ("condor_submit jobs/b.sub", ["--lr", None]),
        ("kubectl apply -f k8s/job.yaml", ["--lr", "9"]),
        ("sky launch -c mine task.yaml", ["--lr", "10"]),
        ("sky launch task.yaml --env LR=0.1", ["--lr", "0.1"]),
        ("sky launch --gpus A100:4 -- python train.py --lr 1", ["--lr", "1"]),
        ("dstack apply", ["--lr", "11"]),
        ("docker compose up", ["--lr", "12"]),
        ("docker compose run --rm trainer python train.py a", ["a"]),
        ("apptainer run --nv lab.sif python train.py a", ["a"]),
        ("kubectl exec -it pod -- python train.py a", ["a"]),
        ("ssh node1 'cd repo && python train.py a'", ["a"]),
        ("tmux new-session -d -s x 'python train.py a'", ["a"]),
        ("tmux send-keys -t x 'python train.py a' Enter", ["a"]),
        ("script -c 'python train.py a' log", ["a"]),
        ("bsub -n 4 -q long python train.py a", ["a"]),
        ("qsub -b y -l gpu=1 python train.py a", ["a"]),
        ("parallel -j 2 python train.py --lr {} ::: 1 2", ["--lr", "1"]),
        ("parallel 'python train.py --lr {1} --wd {2}' ::: 1 2 ::: 3", ["--lr", "1", "--wd", "3"]),
        ("parallel python train.py --lr ::: 1 2", ["--lr", "1"]),
        ("queue-it -G 1 python train.py a", ["a"]),
        ("queue-it 'python train.py a'", ["a"]),
        ("runner run --fast train.py a", ["a"]),
        ("python prepare.py --gpus 8 -- torchrun train.py a", ["a"]),
        ("uv run prepare.py --gpus 8 -- uv run python train.py a", ["a"]),
        ("torchx run -s local_cwd dist.ddp -j 1x2 --script train.py -- --lr 1", ["--lr", "1"]),
        ("torchx run dist.ddp -j 1x2 --script train.py --lr 1", ["--lr", "1"]),
    ],
)
def test_what_runs(plan: Plan, command: str, argv: list[str | None]) -> None:
    found = plan(command, FILES)

    assert (found.entry, words(found)) == ("train.py", argv)


@pytest.mark.parametrize(
    "command",
    ["uv run -m pkg.train a", "torchx run dist.ddp -j 2x8 -m pkg.train -- a"],
)
def test_modules_by_an_option(plan: Plan, command: str) -> None:
    found = plan(command, FILES)

    assert (found.entry, found.module, words(found)) == ("pkg/train.py", "pkg.train", ["a"])


@pytest.mark.parametrize(
    ("command", "gpus", "nodes"),
    [
        ("kubectl apply -f k8s/job.yaml", 16, 4),
        ("sky launch task.yaml", 16, 2),
        ("dstack apply -f .dstack.yml", 4, None),
        ("torchx run dist.ddp -j 2x8 --script train.py", 16, 2),
    ],
)
def test_resources(plan: Plan, command: str, gpus: int, nodes: int | None) -> None:
    facts = plan(command, FILES).facts

    assert facts["gpus"].data == gpus
    assert (facts["nodes"].data if "nodes" in facts else None) == nodes


def test_the_evidence_is_the_line_of_the_file(plan: Plan) -> None:
    found = plan("sky launch task.yaml", FILES)

    places = [(v.origin.file, v.origin.line) for v in found.argv if v.origin is not None]
    assert places[0] == ("task.yaml", 10)
    assert found.env["LR"].origin is not None
    assert (found.env["LR"].origin.file, found.env["LR"].origin.line) == ("task.yaml", 5)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("just train", "just is not followed: give the command that it runs"),
        ("task train", "task is not followed"),
        ("uv run poe train", "poe is not followed"),
        ("dvc repro", "dvc repro is not followed"),
        ("hatch run train", "`train` is a task of hatch, which is not followed: give the command"),
        ("pdm run train --lr 1", "`train` is a task of pdm, which is not followed"),
        ("kubectl apply -f k8s/job.yaml", "k8s/job.yaml has no command that is understood"),
        ("kubectl apply -f k8s/none.yaml", "`kubectl` is given no job description"),
        ("mlflow run .", "mlflow run is not followed: give the command that it runs"),
        ("python -m spacy project run fit", "spacy project is not followed"),
        ("weasel run all", "weasel run is not followed"),
        ("guild run train.py lr=1", "guild run is not followed"),
        ("clearml-task --script train.py", "clearml-task is not followed"),
        (
            "gcloud ai-platform local train --module-name train",
            "gcloud ai-platform is not followed",
        ),
        ("docker run --gpus all lab/train", "`docker` is given no program to run"),
        ("docker run --gpus all lab/train --lr 1", "`docker` is given no program to run"),
    ],
)
def test_what_cannot_be_read_is_said(plan: Plan, command: str, said: str) -> None:
    files = {"pyproject.toml": TASKS, "k8s/job.yaml": "kind: Service\nspec: {ports: [80]}\n"}

    with pytest.raises(InputError, match=said):
        plan(command, files)
