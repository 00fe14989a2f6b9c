"""What kind of job a command starts, and that each kind has its own fields and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from test_fixtures import assert_kept_to_its_kind

from schedmate.agent.fields import kinds
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.launch.launchers import known_program
from schedmate.agent.static import extract
from schedmate.agent.values import Origin
from schedmate.base.data import load
from schedmate.jobs import LaunchConfig, WorkloadMetadata
from schedmate.jobs.metadata import JobKind, family

TRAIN = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--eval", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
def evaluate():
    with torch.no_grad():
        print(model(torch.randn(2, 4)))
if args.eval:
    evaluate()
    raise SystemExit(0)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
SEARCH = """import optuna, torch
def objective(trial):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.suggest_float("lr", 1e-5, 1.0))
    for epoch in range(150):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
study = optuna.create_study()
study.optimize(objective, n_trials=500, n_jobs=4)
"""
WEB = """import gradio
from transformers import AutoModel
model = AutoModel.from_pretrained("THUDM/chatglm-6b")
gradio.Interface(model).launch()
"""
OFFLINE = """from vllm import LLM, SamplingParams
llm = LLM("facebook/opt-125m", tensor_parallel_size=2)
llm.generate(["Hello"], SamplingParams(max_tokens=256))
"""
TUNED = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", num_train_epochs=2)).train()
"""
POLICY = """from trl import GRPOConfig, GRPOTrainer
trainer = GRPOTrainer(
    model="Qwen/Qwen2-0.5B", reward_funcs=len, args=GRPOConfig(num_generations=8, max_steps=90)
)
trainer.train()
"""
FILES = {
    "main.py": TRAIN,
    "search.py": SEARCH,
    "web_demo.py": WEB,
    "offline.py": OFFLINE,
    "tuned.py": TUNED,
    "policy.py": POLICY,
    "serve.sh": "export M=Qwen/Qwen2-7B\npython -m vllm.entrypoints.openai.api_server --model $M "
    "--tensor-parallel-size 2 --max-model-len 32768\n",
    "server_and_train.sh": "vllm serve gpt2 &\npython main.py --epochs 7\n",
    "server_and_eval.sh": "vllm serve gpt2 &\nlm_eval --model local-completions --tasks gsm8k\n",
    "build.sh": "pytest tests\npython main.py --epochs 7\n",
    "prepare.py": "import sys\nopen('out.bin', 'wb').write(open(sys.argv[1], 'rb').read())\n",
    "Makefile": "test:\n\tpytest tests\nall:\n\tgcc -o run run.c\n",
}
MODEL = "model_config.model_name"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def _found(root: Path, command: str, **launch: Any) -> WorkloadMetadata:
    return extract(root, command, LaunchConfig(**launch)).metadata


LM_EVAL = "lm_eval --model hf --model_args pretrained=EleutherAI/pythia-160m,dtype=float "
CASES: list[tuple[str, JobKind, dict[str, Any]]] = [
    ("python main.py", "training", {"training_config.iters": 3, "training_config.batch_size": 16}),
    ("python main.py --eval --batch_size 4", "evaluation", {"job_config.batch_size": 4}),
    ("python search.py", "sweep", {"job_config.trials": 500, "job_config.parallel_trials": 4}),
    ("python search.py", "sweep", {"job_config.trial_iters": 150}),
    ("python web_demo.py", "serving", {MODEL: "THUDM/chatglm-6b"}),
    ("python offline.py", "batch inference", {MODEL: "facebook/opt-125m"}),
    ("python offline.py", "batch inference", {"job_config.tokens_out": 256}),
    ("python offline.py", "batch inference", {"job_config.tensor_parallel": 2}),
    ("python tuned.py", "fine-tuning", {MODEL: "gpt2", "training_config.iters": 2}),
    ("python policy.py", "RL post-training", {"job_config.samples_per_prompt": 8}),
    ("bash serve.sh", "serving", {MODEL: "Qwen/Qwen2-7B", "job_config.max_length": 32768}),
    ("bash serve.sh", "serving", {"job_config.tensor_parallel": 2}),
    ("vllm serve gpt2 --max-tokens 32768", "serving", {MODEL: "gpt2"}),
    ("vllm serve gpt2 --data-parallel-size 4", "serving", {"job_config.data_parallel": 4}),
    (LM_EVAL + "--tasks piqa,arc --batch_size 8", "evaluation", {MODEL: "EleutherAI/pythia-160m"}),
    (LM_EVAL + "--tasks piqa,arc --batch_size 8", "evaluation", {"job_config.tasks": "piqa,arc"}),
    (LM_EVAL + "--tasks x --num_fewshot 0 --limit 9", "evaluation", {"job_config.shots": 0}),
    (LM_EVAL + "--tasks x --num_fewshot 0 --limit 9", "evaluation", {"job_config.items": 9}),
    (LM_EVAL + "--tasks x --batch_size auto", "evaluation", {"job_config.batch_size": None}),
    ("python -m sglang.launch_server --model-path a/b --tp 8", "serving", {MODEL: "a/b"}),
    ("wandb agent me/project/abc123", "sweep", {"job_config.trials": None}),
    ("trtllm-build --checkpoint_dir ckpt", "compile or test", {"job_config.batch_size": None}),
    ("python prepare.py data.txt", "data processing", {MODEL: None}),
    ("img2dataset --url_list a.tsv --processes_count 16", "data processing", {MODEL: None}),
    ("make test", "compile or test", {MODEL: None}),
    ("make all", "compile or test", {MODEL: None}),
    ("bash server_and_train.sh", "training", {"training_config.iters": 7}),
    ("bash server_and_eval.sh", "evaluation", {"job_config.tasks": "gsm8k"}),
    ("bash build.sh", "training", {"training_config.iters": 7}),
]


@pytest.mark.parametrize(("command", "kind", "fields"), CASES)
def test_the_kind_and_its_fields(
    root: Path, command: str, kind: JobKind, fields: dict[str, Any]
) -> None:
    found = _found(root, command)
    assert (found.job_kind, {name: found.get(name) for name in fields}) == (kind, fields)
    assert found.evidence["job_kind"].value == kind


@pytest.mark.parametrize("command", sorted({command for command, _, _ in CASES}))
def test_no_field_of_trainings_is_filled_for_others(root: Path, command: str) -> None:
    found = _found(root, command, gpus=8, nodes=2)
    assert_kept_to_its_kind(found)
    if found.family != "training":
        own = found.sections()["job_config"]
        assert (own["num_gpus"], own["num_nodes"]) == (8, 2)
        assert not found.evidence["job_config.num_gpus"].unsure


@pytest.mark.parametrize("kind", get_args(JobKind))
@pytest.mark.parametrize("sure", [0.5, 0.9])
def test_whatever_tells_the_kind_decides_on_the_fields(
    root: Path, kind: JobKind, sure: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Candidate(kind, Origin("derived"), 50, sure=sure)
    monkeypatch.setattr(kinds, "find_kind", lambda *_: told)
    for command in ("python main.py --epochs 9 --batch_size 32", "python tuned.py"):
        found = _found(root, command)
        assert_kept_to_its_kind(found)
        if kind != "unknown":
            is_training = family(kind) == "training"
            assert (found.get("training_config.iters") is not None) == is_training


def test_what_computes_without_gradients_is_no_training(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.Linear(4, 4)\nbatch_size = 8\n"
    infers = "with torch.no_grad():\n    out = model(torch.randn(batch_size, 4))\n"
    (tmp_path / "run.py").write_text(text + infers)
    (tmp_path / "main.py").write_text(text + infers + "torch.nn.MSELoss()(out, out)\n")
    (tmp_path / "start.py").write_text(f"{text}import subprocess, sys\nsubprocess.run(sys.argv)\n")
    (tmp_path / "entry.py").write_text(text + "print(model)\n")
    found = [_found(tmp_path, f"python {name}.py") for name in ("run", "main", "start", "entry")]
    told = ["batch inference", "evaluation", "unknown", "unknown"]
    assert [metadata.job_kind for metadata in found] == told
    assert [metadata.get("training_config.batch_size") for metadata in found] == [
        None,
        None,
        8,
        None,
    ]  # of the third, another program may be the training


def test_no_field_of_others_is_filled_for_trainings(root: Path) -> None:
    assert "job_config" not in _found(root, "python main.py --epochs 9", gpus=4).sections()


def test_a_program_of_the_repository_is_read_rather_than_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    (tmp_path / "vllm" / "train.py").write_text(TRAIN)
    assert _found(tmp_path, "python -m vllm.train --epochs 4").job_kind == "training"


def test_a_flag_that_is_taken_back_switches_nothing(root: Path) -> None:
    (root / "plain.py").write_text(TRAIN.replace('action="store_true"', "type=eval, default=False"))
    assert _found(root, "python plain.py --eval False").job_kind == "training"


def test_the_sweeper_of_hydra_runs_every_combination(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("lr: 0.1\nepochs: 3\n")
    (tmp_path / "train.py").write_text(
        "import hydra\n@hydra.main(config_path='conf', config_name='config')\n"
        "def main(cfg):\n    print(cfg.lr)\nmain()\n"
    )
    found = _found(tmp_path, "python train.py -m lr=0.1,0.01,0.001 epochs=3,5")
    assert (found.job_kind, found.get("job_config.trials")) == ("sweep", 6)
    assert _found(tmp_path, "python train.py lr=0.1").job_kind == "training"


def test_every_kind_of_the_tables_exists() -> None:
    kinds = set(get_args(JobKind))
    table = rules("kinds")
    for name in ("calls", "functions", "flags", "modes", "names", "folders", "begins", "fields"):
        assert set(table[name]) <= kinds, name
    assert {entry["kind"] for entry in load("agent/launch/programs.yaml")} <= kinds
    assert set().union(*map(set, table["fields"].values())) <= set(table["settings"])


def test_the_longest_name_of_a_program_counts() -> None:
    assert known_program(["vllm", "serve", "gpt2"]).kind == "serving"  # type: ignore[union-attr]
    assert known_program(["vllm", "bench", "serve"]).kind == "compile or test"  # type: ignore[union-attr]
    assert known_program(["/opt/bin/lm_eval", "--tasks", "x"]).kind == "evaluation"  # type: ignore[union-attr]
    assert known_program(["python"]) is None
    assert known_program([]) is None


def test_kinds_that_can_be_compared_have_one_fingerprint_scheme() -> None:
    plain = WorkloadMetadata(model_config={"model_name": "gpt2"})  # type: ignore[arg-type]
    trained = plain.model_copy(update={"job_kind": "training"})
    served = plain.model_copy(update={"job_kind": "serving"})
    assert plain.fingerprint() == trained.fingerprint() != served.fingerprint()
    assert served.missing() == []
    assert served.endless
    assert not trained.endless
