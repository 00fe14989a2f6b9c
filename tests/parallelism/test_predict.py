"""Iteration time and memory of plans, from tables whose answer can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import profile_tables as tables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.network import Network, alpha_beta, interpolated
from schedmate.schedulers.parallelism.operators import calibration
from schedmate.schedulers.parallelism.plan import Plan, parse_plan, read_plans
from schedmate.schedulers.parallelism.predict import Prediction, Predictor
from schedmate.schedulers.parallelism.profile import Tables, read_tables

BASE: dict[str, Any] = {
    "model": "opt-350m",
    "gpus_per_node": 4,
    "global_batch": 16,
    "micro_batch": 2,
    "sequence": 2048,
    "precision": "fp32",
    "optimizer": "Adam",
    "stages": [{"layers": 26, "tensor": 1, "data": 1, "gpu_type": "GH-96"}],
}


def plan(**changes: Any) -> Plan:
    return parse_plan({**BASE, **changes}, "test")


def stages(
    *layers: int, tensor: int = 1, data: int = 1, gpu: str = "GH-96"
) -> list[dict[str, Any]]:
    return [{"layers": n, "tensor": tensor, "data": data, "gpu_type": gpu} for n in layers]


@pytest.fixture
def profiled(tmp_path: Path) -> Predictor:
    tables.write(tmp_path, tables.layers())
    tables.links(tmp_path)
    return Predictor(Network(read_tables([tmp_path])))


def test_an_iteration_of_several_nodes_alone_has_the_overhead_of_nodes(
    profiled: Predictor,
) -> None:
    overhead = calibration()["iteration"]["iteration_overhead_s"]
    assert profiled.predict(plan()).parts["overhead_s"] == 0
    assert profiled.predict(plan(stages=stages(26, data=4))).parts["overhead_s"] == 0
    assert profiled.predict(plan(stages=stages(26, data=8))).parts["overhead_s"] == overhead


@pytest.mark.parametrize(
    ("changes", "rests_on", "said"),
    [
        ({"stages": stages(12, 14, data=8)}, "fitted", None),
        ({"stages": stages(26, data=1)}, "unlike", "1 GPU of GH200-96"),
        ({"stages": stages(26, data=8, gpu="A100-40")}, "datasheet", "give --profile"),
    ],
)
def test_the_interval_is_of_plans_that_rest_on_the_same(
    changes: dict[str, Any], rests_on: str, said: str | None, tmp_path: Path
) -> None:
    tables.write(tmp_path, tables.layers())
    tables.links(tmp_path)
    profiled = Predictor(Network(read_tables([tmp_path] if rests_on != "datasheet" else [])))
    found = profiled.predict(plan(**changes))
    low, high = found.interval_s
    factor = calibration()["interval"]["factors"][rests_on]
    assert (low, high) == pytest.approx((found.iteration_s / factor, found.iteration_s * factor))
    assert said is None or any(said in note for note in found.notes)
    assert said is not None or not any("fitted" in note for note in found.notes)


def test_one_stage_computes_all_operators_of_all_micro_batches(profiled: Predictor) -> None:
    found = profiled.predict(plan())
    overhead = calibration()["iteration"]["operator_overhead_s"]
    operators = 13 * 24 + 3
    each = 2 * (0.001 + 0.002) - 2 * overhead  # two samples, forward and back
    assert found.parts["compute_s"] == pytest.approx(8 * operators * each, rel=1e-9)
    assert found.source == "profile"
    assert found.parts["messages_s"] == found.parts["pipeline_fill_s"] == 0
    assert found.parts["gradient_reduction_s"] == 0
    assert found.iteration_s == pytest.approx(sum(found.parts.values()))


def test_a_pipeline_goes_at_the_pace_of_its_slowest_stage(profiled: Predictor) -> None:
    found = profiled.predict(plan(stages=stages(6, 20)))
    each = 2 * (0.003) - 2 * calibration()["iteration"]["operator_overhead_s"]
    slow, fast = (19 * 13 + 2) * each, (5 * 13 + 1) * each
    assert found.bottleneck == 1
    assert found.parts["compute_s"] == pytest.approx(8 * slow)
    message = found.parts["messages_s"] / 8
    assert found.parts["pipeline_fill_s"] == pytest.approx(fast + message)


def test_messages_take_what_the_links_say(profiled: Predictor) -> None:
    found = profiled.predict(plan(gpus_per_node=1, stages=stages(13, 13)))
    constants = calibration()["iteration"]
    wire = 2 * 2048 * 1024 * 4 / 20e9
    each = constants["message_s"] + constants["message_factor"] * wire
    assert found.parts["messages_s"] == pytest.approx(8 * each)


def test_gradients_go_round_the_replicas(profiled: Predictor) -> None:
    found = profiled.predict(plan(gpus_per_node=1, stages=stages(26, data=4)))
    parameters = 12596224 * 24 + (50304 + 2048) * 1024 + 50304 * 1024 + 2048
    assert found.parts["gradient_reduction_s"] == pytest.approx(1.5 * 4 * parameters / 20e9)


def test_a_larger_vocabulary_makes_the_head_slower(profiled: Predictor) -> None:
    sizes = {"hidden": 1024, "layers": 24, "heads": 16, "vocabulary": 2 * 50304}
    small = profiled.predict(plan()).parts["compute_s"]
    large = profiled.predict(plan(model="ours", model_sizes=sizes)).parts["compute_s"]
    head = 0.006 - 2 * calibration()["iteration"]["operator_overhead_s"]
    table = 0.004 - calibration()["iteration"]["operator_overhead_s"]
    assert large - small == pytest.approx(8 * (head + table))


def test_what_was_not_timed_is_estimated_and_said(tmp_path: Path) -> None:
    tables.write(tmp_path, tables.layers(micro_batches=(1,)))
    found = Predictor(Network(read_tables([tmp_path]))).predict(plan())
    assert found.source == "device model"
    assert any("estimated by the device model" in note for note in found.notes)


def test_a_profile_of_another_gpu_type_is_refused(profiled: Predictor) -> None:
    with pytest.raises(InputError, match="the profile covers GH200-96, none of A100-40"):
        profiled.predict(plan(stages=stages(26, gpu="A100-40")))


def test_memory_is_counted_term_by_term() -> None:
    found = Predictor(Network(Tables())).predict(plan(stages=stages(13, 13, tensor=4)))
    first, second = found.memory
    assert first.states == pytest.approx(24 * (12 * 3165184 + 50304 * 256 + 2048 * 1024), rel=0.02)
    assert first.activations > 1.9 * (second.activations - 2 * 4 * 2048 * 50304 * 2 / 4)
    assert found.max_memory_bytes == max(first.total, second.total)


@pytest.mark.parametrize("sharding", ["zero-1", "zero-2", "zero-3"])
def test_sharding_divides_states(sharding: str) -> None:
    predictor = Predictor(Network(Tables()))
    whole = predictor.predict(plan(stages=stages(26, data=8))).memory[0].states
    shared = predictor.predict(plan(stages=stages(26, data=8), sharding=sharding)).memory[0].states
    assert shared < whole


def test_a_plan_that_does_not_fit_says_what_takes_the_memory() -> None:
    found = Predictor(Network(Tables())).predict(
        plan(model="opt-30b", stages=stages(50, gpu="A100-40"))
    )
    assert not found.fits
    assert "stage 1 needs" in found.why_not
    assert "weights, gradients and optimiser states" in found.why_not


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"global_batch": 15}, "global_batch 15 is not divisible by micro_batch 2 x 1"),
        ({"stages": []}, "stages"),
        ({"stages": stages(13, 13, data=2)[:1] + stages(13)}, "all stages of a plan need the same"),
        ({"stages": [{"layers": 26}]}, "set gpu_type, or replicas"),
        ({"stages": [{"layers": 26, "data": 2, "replicas": [{"gpu_type": "A40"}]}]}, "1 replicas"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"precision": "fp12"}, "precision"),
        ({"sharding": "zero-9"}, "sharding"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(**changes)


def test_layers_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(InputError, match="its stages have 24 layers, but opt-350m has 26"):
        Predictor(Network(Tables())).predict(plan(stages=stages(24)))


def test_mixed_replicas_wait_for_the_slowest() -> None:
    predictor = Predictor(Network(Tables()))
    mixed = {"layers": 26, "data": 2, "replicas": [{"gpu_type": "H100-80"}, {"gpu_type": "T4"}]}
    slow = predictor.predict(plan(stages=stages(26, data=2, gpu="T4")))
    found = predictor.predict(plan(stages=[mixed]))
    assert found.parts["compute_s"] == slow.parts["compute_s"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (json.dumps(BASE) + "\n{", "line 2: not JSON"),
        ("[1]", "plan 1: a plan is a JSON object, not int"),
        ("3", "a plan is a JSON object, not int"),
        ("[" * 100_000, "nested too deep|not JSON"),
    ],
)
def test_files_that_hold_no_plans_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plans.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        list(read_plans(path))


def test_plans_are_read_as_an_object_an_array_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "plans"
    for text in (
        json.dumps(BASE),
        json.dumps(BASE, indent=2),
        json.dumps([BASE]),
        json.dumps(BASE) + "\n",
        json.dumps({"best": {"plan": BASE}}),
    ):
        path.write_text(text)
        assert [one.global_batch for one in read_plans(path)] == [16]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (tables.layers(forward_us="nan"), "line 2: forward_us is 'nan'"),
        (tables.layers(forward_us=-1.0), "forward_us is"),
        ("a,b\n1,2\n", "names none of their columns|no profile"),
    ],
)
def test_tables_that_hold_no_times_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_tables([tables.write(tmp_path, text, "layers.csv")])


def test_rows_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    text = (
        tables.layers(micro_batches=(1,))
        + tables.layers(micro_batches=(2,), forward_us=1e7).partition("\n")[2]
    )
    found = read_tables([tables.write(tmp_path, text)])
    assert {key.micro_batch for key in found.layers} == {1}


def test_collectives_are_interpolated() -> None:
    points = [(1e6, 1e-3), (3e6, 2e-3), (1e8, 0.1)]
    assert interpolated(points, 10) == 1e-3
    assert interpolated(points, 2e6) == pytest.approx(1.5e-3)
    assert interpolated(points, 2e8) == pytest.approx(0.2)
    alpha, beta, error = alpha_beta([(size, 1e-4 + size / 1e10) for size in (1e5, 1e6, 1e7)])
    assert (alpha, 1 / beta, error) == pytest.approx((1e-4, 1e10, 0), abs=1e-6, rel=1e-6)


def _predicted(**changes: Any) -> Prediction:
    return Predictor(Network(Tables())).predict(plan(**changes))


@settings(max_examples=25)
@given(
    gpu=st.sampled_from(["H100-80", "A100-40", "A40", "V100-16", "L20"]),
    cut=st.integers(2, 24),
    tensor=st.sampled_from([1, 2, 4]),
    micro=st.sampled_from([1, 2, 4]),
)
def test_more_work_takes_longer(gpu: str, cut: int, tensor: int, micro: int) -> None:
    split = stages(cut, 26 - cut, tensor=tensor, gpu=gpu)
    one = _predicted(stages=split, micro_batch=micro, global_batch=32)
    more = _predicted(stages=split, micro_batch=micro, global_batch=64)
    again = _predicted(stages=split, micro_batch=micro, global_batch=32, recompute="full")
    assert 0 < one.iteration_s < more.iteration_s
    assert one.iteration_s < again.iteration_s
    assert sum(again.parts.values()) == pytest.approx(again.iteration_s)
    assert again.memory[0].activations < one.memory[0].activations


def test_fully_sharded_plans_come_near_the_rows_they_were_not_fitted_to() -> None:
    from schedmate.schedulers.parallelism import predict

    errors = []
    for place, (at, measured) in enumerate(predict.measured_rows()):
        share, spread = predict.flop_utilisation(at, without=place)
        assert spread > 0
        errors.append(abs(share / 2.718281828**measured - 1))
    assert sum(errors) / len(errors) < 0.05
