"""Kernel tables and collectives: what is fitted to them, what is timed, and what is said of it."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from jsonschema import Draft202012Validator

from schedmate.base.errors import INPUT, OK, USAGE, InputError
from schedmate.schedulers.parallelism.devices import find_device
from schedmate.schedulers.parallelism.network import Network, alpha_beta_fits
from schedmate.schedulers.parallelism.operators import (
    PeakShares,
    bundled_shares,
    fit_shares,
    operator_time,
    read_kernels,
)
from schedmate.schedulers.parallelism.plan import parse_plan
from schedmate.schedulers.parallelism.predict import Prediction, Predictor
from schedmate.schedulers.parallelism.profile import Tables, read_tables

SCHEMAS = Path(__file__).parent.parent.parent / "docs" / "schemas"


def rows(gpu: str, share: float, memory: float, count: int = 60) -> list[dict[str, str]]:
    """Kernels of a GPU type that reaches exactly these shares."""
    draw = random.Random(gpu)
    spec, found = find_device(gpu), []
    for _ in range(count):
        sizes = {name: str(2 ** draw.randint(10, 13)) for name in "MNK"}
        found.append({"op": "linear", "device": gpu, "B": "1", **sizes})
        found.append(
            {"op": "gelu", "device": gpu, "B": str(draw.randint(1, 9) * 10_000), "H": "4096"}
        )
    reached = PeakShares({"fp32": share}, memory)
    for row, one in zip(
        found, read_kernels([{**row, "latency_ms": "1"} for row in found]), strict=True
    ):
        row["latency_ms"] = str(operator_time(spec, one.operator, "fp32", reached) * 1e3)
    return found


def predicted(tables: Tables, **changes: Any) -> Prediction:
    plan = {
        "model": "gpt2",
        "gpus_per_node": 8,
        "global_batch": 64,
        "micro_batch": 4,
        "sequence": 1024,
        "precision": "fp32",
        "stages": [{"layers": 14, "data": 8, "gpu_type": "A100-80"}],
        **changes,
    }
    return Predictor(Network(tables)).predict(parse_plan(plan, "test"))


@pytest.mark.parametrize(("share", "memory"), [(0.9, 0.8), (0.45, 0.6)])
def test_what_a_gpu_reaches_is_found_from_its_kernels(share: float, memory: float) -> None:
    found = fit_shares(rows("A100-40", share, memory), {"A100-40": find_device("A100-40")})[
        "A100-40"
    ]
    assert found.products["fp32"] == pytest.approx(share, rel=0.1)
    assert found.memory == pytest.approx(memory, rel=0.02)
    assert (
        found.products["fp16"] == bundled_shares("A100-40").products["fp16"]
    )  # nobody measured it


def test_a_kernel_table_changes_what_is_predicted_of_its_gpu_types_alone(tmp_path: Path) -> None:
    table = rows("A100-80", 0.3, 0.4)
    path = tmp_path / "kernels.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["op", "device", "B", "M", "N", "K", "H", "latency_ms"])
        writer.writeheader()
        writer.writerows(table)
    slow = read_tables([path])
    other = [{"layers": 14, "data": 8, "gpu_type": "H100"}]
    own, bare = predicted(slow), predicted(Tables())
    assert own.source == "fitted device model"
    assert own.parts["compute_s"] > 1.5 * bare.parts["compute_s"]
    unchanged = predicted(slow, stages=other)
    assert unchanged.source == "device model"
    assert unchanged.iteration_s == predicted(Tables(), stages=other).iteration_s


@pytest.mark.parametrize("bad", [{"latency_ms": "nan"}, {"latency_ms": "-1"}, {"M": ""}])
def test_a_kernel_without_numbers_is_named(bad: dict[str, str]) -> None:
    row = {"op": "linear", "device": "A100", "B": "1", "M": "8", "N": "8", "K": "8"}
    with pytest.raises(InputError, match=r"line 2: 'linear' needs sizes and a latency above 0"):
        list(read_kernels([{**row, "latency_ms": "1", **bad}]))


@pytest.mark.parametrize(
    ("gpu", "precision", "said"),
    [
        ("V100-32", "bf16", "no units for bf16: its matrix products are priced as fp32; fp16 is"),
        ("A100-80", "fp8", "no units for fp8: its matrix products are priced as bf16"),
        ("P4", "fp16", "no units for fp16: its matrix products are priced as fp32"),
    ],
)
def test_a_precision_that_a_gpu_lacks_is_said(gpu: str, precision: str, said: str) -> None:
    stages = [{"layers": 14, "data": 8, "gpu_type": gpu}]
    found = predicted(Tables(), precision=precision, stages=stages)
    assert any(said in note for note in found.notes)
    plain = predicted(Tables(), precision="fp32", stages=stages).notes
    assert not any("no units" in note for note in plain)
    assert any("as tf32" in note for note in plain) == (gpu == "A100-80")


def test_a_tensor_degree_has_to_divide_the_heads() -> None:
    stages = [{"layers": 14, "tensor": 8, "gpu_type": "A100"}]
    with pytest.raises(InputError, match="12 attention heads of gpt2 cannot be divided among 8"):
        predicted(Tables(), stages=stages)


def table(folder: Path, text: str) -> str:
    path = folder / "collectives.csv"
    path.write_text("gpu,precision,primitive,gpus,data_size(mb),time(ms)\n" + text)
    return str(path)


def test_latency_and_bandwidth_of_collectives_are_shown_with_their_error(
    cli: Cli, tmp_path: Path
) -> None:
    line = "".join(
        f"A100-40,fp16,all_reduce,4,{size},{0.05 + size * 2**20 / 200e9 * 1e3}\n"
        for size in (1, 2, 4, 8, 16)
    )
    bent = "".join(f"A100-40,fp16,all_gather,4,{size},{size**0.5}\n" for size in (1, 4, 16, 64))
    path = table(tmp_path, line + bent)
    straight, curved = sorted(alpha_beta_fits(read_tables([Path(path)])), key=lambda one: one.error)
    assert straight.primitive == "all_reduce"
    assert straight.latency_s == pytest.approx(50e-6, rel=1e-6)
    assert straight.bandwidth == pytest.approx(200e9, rel=1e-6)
    assert straight.error < 1e-6 < 0.1 < curved.error
    text = cli("parallel", "collectives", "--profile", path)
    assert text.code == OK
    assert "200.0 GB/s" in text.out
    document = json.loads(cli("parallel", "collectives", "--profile", path, "--json").out)
    schema = json.loads((SCHEMAS / "parallel-collectives-v1.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    assert len(document["collectives"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], USAGE, "say what to show"),
        (["--ranks", "2"], USAGE, "say --gpu NAME and -o FILE"),
        (["--ranks", "2", "--gpu", "X", "-o", "x", "--on", "tpu"], USAGE, "--on tpu"),
        (["--profile", "layers.csv"], INPUT, "layers.csv"),
    ],
)
def test_collectives_that_cannot_be_shown(
    cli: Cli, arguments: list[str], code: int, said: str
) -> None:
    result = cli("parallel", "collectives", *arguments)
    assert result.code == code
    assert said in result.err


@pytest.mark.slow
def test_two_processes_time_collectives_and_operators_that_predictions_then_use(
    cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    collectives, layers = tmp_path / "collectives.csv", tmp_path / "layers.csv"
    options = ["--gpu", "A100-40", "--on", "cpu", "--repeats", "2"]
    timed = cli("parallel", "collectives", "--ranks", "2", "-o", str(collectives), *options)
    assert timed.code == OK, timed.err
    known = read_tables([collectives]).collectives
    points = known["A100-40", "fp32", "all_reduce", 2]
    assert [size for size, _ in points] == [2**16, 2**18, 2**20, 2**22, 2**24, 2**26]
    assert all(0 < seconds < math.inf for _, seconds in points)

    sizes = ["--model", "opt-350m", "--sequence", "16", "--precision", "fp32"]
    degrees = ["--micro-batch", "1", "--tensor", "1", "--tensor", "2"]
    profiled = cli("parallel", "profile", *sizes, *degrees, "-o", str(layers), *options)
    assert profiled.code == OK, profiled.err
    stages = [{"layers": 26, "tensor": 2, "gpu_type": "A100-40"}]
    plan = {"model": "opt-350m", "global_batch": 4, "micro_batch": 1, "sequence": 16}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**plan, "precision": "fp32", "stages": stages}))
    both = ["--profile", str(layers), "--profile", str(collectives)]
    found = json.loads(cli("parallel", "predict", str(path), *both, "--json").out)
    assert found["source"] == "profile"
    lines = layers.read_text().splitlines()
    once = sum(
        float(row["forward_us"]) + float(row["backward_us"])
        for row in csv.DictReader(lines)
        if row["tensor_parallel"] == "2" and row["operator"].startswith("enc-")
    )
    # Four micro-batches of 24 blocks: no more than the timed operators, which are all there.
    assert 0 < found["parts"]["compute_s"] < 4 * 24 * once / 1e6 * 1.5
