"""`schedmate parallel` as users run it, and plans through launch arguments and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import profile_tables as tables
import pytest
from cli_runner import Cli
from jsonschema import Draft202012Validator

from schedmate.base.errors import INPUT, OK, USAGE

SCHEMAS = Path(__file__).parent.parent.parent / "docs" / "schemas"

PLAN: dict[str, Any] = {
    "id": "one",
    "model": "gpt2",
    "gpus_per_node": 8,
    "global_batch": 64,
    "micro_batch": 4,
    "sequence": 1024,
    "precision": "bf16",
    "stages": [
        {"layers": 7, "tensor": 2, "data": 2, "gpu_type": "A100"},
        {"layers": 7, "tensor": 2, "data": 2, "gpu_type": "A100"},
    ],
}

PROGRAM = """
import argparse

def main():
    parser = argparse.ArgumentParser()
    for name in ("tensor-model-parallel-size", "pipeline-model-parallel-size", "num-layers",
                 "hidden-size", "num-attention-heads", "ffn-hidden-size", "seq-length",
                 "max-position-embeddings", "micro-batch-size", "global-batch-size"):
        parser.add_argument("--" + name, type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--train-iters", type=int, default=100)
    args = parser.parse_args()
    for step in range(args.train_iters):
        train_step(args)

if __name__ == "__main__":
    main()
"""


def write(folder: Path, *plans: dict[str, Any]) -> Path:
    path = folder / "plan.json"
    path.write_text("\n".join(map(json.dumps, plans)))
    return path


def test_predict_prints_what_a_plan_takes(cli: Cli, tmp_path: Path) -> None:
    result = cli("parallel", "predict", str(write(tmp_path, PLAN)))
    assert result.code == OK
    assert "s an iteration" in result.out
    assert "gradient reduction" in result.out


def test_predict_prints_a_line_of_json_for_each_plan(cli: Cli, tmp_path: Path) -> None:
    wrong = {**PLAN, "id": "two", "model": "opt-350m"}
    result = cli("parallel", "predict", str(write(tmp_path, PLAN, wrong)), "--json")
    assert result.code == INPUT
    first, second = map(json.loads, result.out.splitlines())
    schema = json.loads((SCHEMAS / "parallel-prediction-v1.schema.json").read_text())
    Draft202012Validator(schema).validate(first)
    assert first["iteration_s"] == pytest.approx(sum(first["parts"].values()))
    assert second["id"] == "two"
    assert "its stages have 14 layers" in second["error"]


def test_a_line_that_is_no_plan_gets_its_error_and_the_others_their_answers(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "plans.jsonl"
    lines = [json.dumps(PLAN), "{not json", '{"id": "x"}', json.dumps({**PLAN, "id": "last"})]
    path.write_text("\n".join(lines))
    result = cli("parallel", "predict", str(path), "--json")
    assert result.code == INPUT
    found = list(map(json.loads, result.out.splitlines()))
    assert ["error" in one for one in found] == [False, True, True, False]
    assert [one["id"] for one in found] == ["one", "line 2", "line 3", "last"]
    assert "line 2: not JSON" in found[1]["error"]
    assert "line 3: global_batch is missing (2 more)" in found[2]["error"]
    text = cli("parallel", "predict", str(path))
    assert text.code == INPUT
    assert "line 2: not JSON" in text.out
    path.write_text("[1, " + json.dumps(PLAN) + "]")
    assert cli("parallel", "predict", str(path), "--json").out.count('"iteration_s"') == 1


def test_predict_reads_profiles(cli: Cli, tmp_path: Path) -> None:
    tables.write(tmp_path, tables.layers("A100", precision="bf16"))
    plan = {
        **PLAN,
        "model": "opt-350m",
        "micro_batch": 2,
        "sequence": 2048,
        "stages": [{"layers": 26, "tensor": 2, "data": 2, "gpu_type": "A100"}],
    }
    path = str(write(tmp_path, plan))
    profile = str(tmp_path / "layers.csv.gz")
    result = cli("parallel", "predict", path, "--json", "--profile", profile)
    assert result.code == OK
    assert json.loads(result.out)["source"] == "profile"
    gone = cli("parallel", "predict", path, "--profile", str(tmp_path / "gone.csv"))
    assert gone.code == INPUT
    assert "gone.csv" in gone.err


def test_plan_finds_plans_and_says_why(cli: Cli, tmp_path: Path) -> None:
    arguments = ("parallel", "plan", "--model", "gpt-1.3b", "--gpus", "8", "--gpu-type", "A40")
    text = cli(*arguments)
    assert text.code == OK
    assert "Time goes to: compute" in text.out
    assert "samples/s" in text.out
    document = json.loads(cli(*arguments, "--json").out)
    schema = json.loads((SCHEMAS / "parallel-planning-v1.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    assert document["best"]["prediction"]["fits"]
    page = tmp_path / "plan.html"
    assert cli(*arguments, "-o", str(page)).code == OK
    assert "Pareto frontier" in page.read_text()
    assert page.read_text().count("<circle") >= len(document["best"]["frontier"])


def test_plan_reads_the_model_from_source_code(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pretrain.py").write_text(PROGRAM)
    command = (
        "python pretrain.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
        "--seq-length 2048 --global-batch-size 128"
    )
    result = cli("parallel", "plan", str(tmp_path), "--command", command, "--gpus", "8", "--json")
    assert result.code == OK
    document = json.loads(result.out)
    assert document["parameters"] == pytest.approx(1.3e9, rel=0.05)
    plan = document["best"]["plan"]
    assert (plan["global_batch"], plan["sequence"]) == (128, 2048)


LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
)
arguments = TrainingArguments(output_dir="out", max_steps=1000, bf16=True)
model = LlamaForCausalLM(config)
Trainer(model=model, args=arguments).train()
"""


def test_plan_reads_a_configuration_that_is_made_in_the_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LLAMA)
    result = cli(
        *("parallel", "plan", str(tmp_path), "-c", "python train.py", "--gpus", "16", "--json")
    )
    assert result.code == OK
    document = json.loads(result.out)
    # Mistral-7B has these sizes: gated, with grouped queries, and no table shared with the head.
    assert document["parameters"] == pytest.approx(7.24e9, rel=0.01)
    sizes = document["best"]["plan"]["model_sizes"]
    assert {"kv_heads": 8, "ffn": 14336, "gated": True, "tied": False}.items() <= sizes.items()


def test_grouped_queries_and_experts_of_a_command_reach_the_plan(cli: Cli, tmp_path: Path) -> None:
    more = (
        'parser.add_argument("--num-query-groups", type=int, default=1)\n    '
        'parser.add_argument("--num-experts", type=int, default=None)\n    '
    )
    program = PROGRAM.replace("args = parser", more + "args = parser")
    (tmp_path / "pretrain.py").write_text(program)
    sizes = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    command = f"python pretrain.py {sizes} --global-batch-size 64"
    plain, grouped, experts = (
        json.loads(
            cli("parallel", "plan", str(tmp_path), "--command", command + extra, "--json").out
        )
        for extra in ("", " --num-query-groups 4", " --num-experts 8")
    )
    assert "kv_heads" not in plain["best"]["plan"]["model_sizes"]
    assert grouped["best"]["plan"]["model_sizes"]["kv_heads"] == 4
    assert grouped["parameters"] < plain["parameters"] < experts["parameters"]
    assert experts["best"]["plan"]["model_sizes"]["experts"] == 8


def test_exported_arguments_come_back_through_analyze(cli: Cli, tmp_path: Path) -> None:
    exported = cli("parallel", "export", str(write(tmp_path, PLAN)), "--to", "megatron")
    assert exported.code == OK
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "pretrain_gpt.py").write_text(PROGRAM)
    result = cli("analyze", str(repo), "--command", exported.out, "--json")
    assert result.code == OK
    metadata = json.loads(result.out)["metadata"]
    sizes, training = metadata["model_config"], metadata["training_config"]
    found = {**sizes, **training}
    wanted = {
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "batch_size": 4,
        "global_batch_size": 64,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert {12, 768} <= {value for value in sizes.values() if isinstance(value, int)}


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("megatron", "--tensor-model-parallel-size=2"),
        ("deepspeed", '"gradient_accumulation_steps":8'),
        ("torchtitan", "--parallelism.pipeline_parallel_degree=2"),
    ],
)
def test_plans_become_arguments(cli: Cli, tmp_path: Path, framework: str, said: str) -> None:
    result = cli("parallel", "export", str(write(tmp_path, PLAN)), "--to", framework)
    assert result.code == OK
    assert said in result.out


def test_uneven_stages_become_a_layout(cli: Cli, tmp_path: Path) -> None:
    stages = [{**PLAN["stages"][0], "layers": 5}, {**PLAN["stages"][0], "layers": 9}]
    result = cli("parallel", "export", str(write(tmp_path, {**PLAN, "stages": stages})))
    assert "--pipeline-model-parallel-layout=Etttt|ttttttttL" in result.out


def test_fully_sharded_plans_become_fsdp(cli: Cli, tmp_path: Path) -> None:
    stages = [{"layers": 14, "data": 8, "gpu_type": "A100"}]
    plan = {**PLAN, "stages": stages, "sharding": "FULL_SHARD", "recompute": True}
    result = cli("parallel", "export", str(write(tmp_path, plan)), "--to", "fsdp")
    assert "--fsdp_sharding_strategy=FULL_SHARD" in result.out
    assert "--num_processes=8" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan"], USAGE, "say what to plan"),
        (["plan", "--model", "gpt9"], INPUT, "unknown model"),
        (["plan", "--model", "gpt2", "--gpu-type", "A9"], INPUT, "unknown GPU type"),
        (["plan", "--model", "gpt2", "--precision", "fp9"], USAGE, "--precision: 'fp9' is given"),
        (["plan", "--model", "gpt2", "--sharding", "zero-3"], USAGE, "leaves no stages"),
        (["plan", "--model", "gpt2", "--device", "X"], INPUT, "--device 'X' lacks"),
        (["export", "gone.json"], INPUT, "gone.json: cannot be read"),
        (["export", "gone.json", "--to", "jax"], USAGE, "--to jax: say one of"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    cli: Cli, arguments: list[str], code: int, said: str
) -> None:
    result = cli("parallel", *arguments)
    assert result.code == code
    assert said in result.err
    assert "Traceback" not in result.err


def test_plans_that_a_framework_cannot_run_are_refused(cli: Cli, tmp_path: Path) -> None:
    mixed = [PLAN["stages"][0], {**PLAN["stages"][0], "tensor": 4}]
    path = str(write(tmp_path, {**PLAN, "stages": mixed}))
    for framework in ("megatron", "deepspeed", "torchtitan", "fsdp"):
        result = cli("parallel", "export", path, "--to", framework)
        assert result.code == INPUT


def test_known_devices_and_models_are_listed(cli: Cli) -> None:
    assert "NVIDIA H100 datasheet" in cli("parallel", "devices").out
    assert "gpt-2.7b" in cli("parallel", "models").out
    assert json.loads(cli("parallel", "devices", "--json").out)["devices"]
    assert json.loads(cli("parallel", "models", "--json").out)["models"]


def test_a_name_of_several_gpus_says_which_is_taken(cli: Cli, tmp_path: Path) -> None:
    plan = ["parallel", "plan", "--model", "gpt2", "--gpus", "2", "--gpu-type"]
    assert "A100 is taken for A100-40 (40 GB); write A100-80" in cli(*plan, "A100").err
    assert "taken for" not in cli(*plan, "A100-80").err
    assert "taken for" not in cli(*plan, "H100").err, "both H100 have 80 GB"
    serve = cli("llm", "serve-command", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "V100")
    assert "V100 is taken for V100-16 (16 GB); write V100-32" in serve.err
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN).replace("A100-80", "A100"))
    assert "A100 is taken for" in cli("parallel", "predict", str(path)).err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["parallel", "plan", "--model", "gpt2", "--gpu-type", "A9"], "--device"),
        (["llm", "serve-command", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "A9"], "--gpu"),
    ],
)
def test_an_unknown_gpu_is_described_by_an_option_that_exists(
    cli: Cli, arguments: list[str], option: str
) -> None:
    result = cli(*arguments)
    assert result.code == INPUT
    assert f"`{option} NAME:memory=80,bandwidth=3350,fp16=989` describes another" in result.err
    assert option in cli(*arguments[:2], "--help").out
