"""How sure answers are: the fitted tables, what facts do to them, and how they are reported."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.fields.confidence import (
    FIELDS,
    ITERS,
    MODEL,
    RATE,
    TASK,
    Scene,
    cautious_confidence,
    confidences,
    doubt_of,
    facts_about,
    fitted_weights,
    judge_answers,
)
from schedmate.agent.static import extract
from schedmate.agent.values import Origin
from schedmate.base.data import PACKAGE, load
from schedmate.jobs import WorkloadMetadata

shares = st.floats(0, 1)


@pytest.mark.parametrize("number", [math.inf, 1e308, 10**40])
def test_facts_of_a_length_hold_for_any_number(number: float) -> None:
    length = Candidate(number, Origin("command", text="--steps"), 80, rule="setting")
    answers = {ITERS: length}
    seen = Scene("train.py", [], 9, 1, True, True, True, lambda name, table: False, answers=answers)
    found = facts_about(ITERS, length, [length], seen)
    assert found.get("a power of ten", 0) == (number != math.inf)


@given(shares, shares)
def test_the_scale_keeps_the_order_and_never_says_more_than_the_probability(
    one: float, other: float
) -> None:
    assert 0 <= cautious_confidence(one) <= one + 1e-9
    assert cautious_confidence(min(one, other)) <= cautious_confidence(max(one, other)) + 1e-9


@given(st.sampled_from(FIELDS), st.floats(0, 130))
def test_a_better_prior_never_makes_an_answer_less_sure(field: str, prior: float) -> None:
    model = fitted_weights()[field]
    assert model.prior > 0
    assert model.probability(prior, {}) <= model.probability(prior + 1, {}) + 1e-12


@pytest.mark.parametrize("field", FIELDS)
def test_the_weights_are_readable_and_say_how_they_did_on_folds(field: str) -> None:
    name = field.partition(".")[2]
    table = load(f"agent/fields/weights/{name}.yaml")
    assert table["folds"]["answers"] >= table["folds"]["right"] > 0
    assert table["folds"]["calibration error"] < 0.1
    assert all(math.isfinite(weight) and abs(weight) < 5 for weight in table["facts"].values())
    assert (PACKAGE / f"agent/fields/weights/{name}.yaml").read_text().startswith("# Log-odds")


def test_an_answer_that_is_doubted_is_no_surer_than_its_score() -> None:
    rate = Candidate(None, Origin("code", "train.py", 3), 30, rule="call", doubted=True)
    seen = Scene("train.py", [], 9, 1, True, True, True, lambda name, table: False)
    judged = judge_answers({RATE: rate}, seen)[RATE]
    assert judged.sure == 0.3
    assert (judge_answers({RATE: replace(rate, doubted=False)}, seen)[RATE].sure or 0) > 0.3


def sure(tmp_path: Path, source: str, command: str, name: str = "train.py") -> dict[str, float]:
    (tmp_path / name).write_text(source)
    found = extract(tmp_path, command).metadata
    return {field: proof.confidence for field, proof in found.evidence.items()}


PLAIN = """
import argparse
import torch
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--model_name_or_path", default="gpt2")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    loss = model()
    loss.backward()
"""


def test_a_name_given_on_the_command_line_is_surer_than_a_default(tmp_path: Path) -> None:
    written = sure(tmp_path, PLAIN.replace("gpt2", "team/alpha"), "python train.py")
    command = "python train.py --model_name_or_path team/alpha"
    assert written[MODEL] < sure(tmp_path, PLAIN, command)[MODEL]


def test_of_a_model_named_by_the_script_alone_nothing_is_sure(tmp_path: Path) -> None:
    source = "import keras\nmodel = keras.Sequential([])\nmodel.fit(epochs=4)\n"
    found = sure(tmp_path, source, "python bert_training.py", "bert_training.py")
    assert found[MODEL] <= 0.7


def test_what_follows_from_a_doubted_name_is_doubted() -> None:
    name = Candidate("generator", Origin("code", "train.py", 3), 30, rule="network")
    domain = Candidate("CV", Origin("derived", "train.py", 3), 95, rule="model")
    data = Candidate("CV", Origin("derived", "train.py", 3), 95, rule="dataset")
    seen = Scene("train.py", ["train.py"], 9, 1, True, True, True, lambda name, table: False)

    def task(candidate: Candidate) -> float:
        seen.answers = {MODEL: name, TASK: candidate}
        return confidences(seen.answers, {}, seen)[TASK]

    seen.answers = {MODEL: name}
    doubted = confidences(seen.answers, {}, seen)[MODEL]
    assert task(domain) <= doubted + 0.05 < 0.5 < task(data)


def test_an_unsure_answer_says_why_and_what_else_it_could_be(tmp_path: Path) -> None:
    classes = ("Critic", "Actor")
    source = "import torch\n" + "".join(
        f"class {name}(torch.nn.Module):\n    def forward(self, x): return x\n" for name in classes
    )
    source += "critic = Critic()\nactor = Actor()\n"
    (tmp_path / "train.py").write_text(source)
    metadata = extract(tmp_path, "python train.py").metadata
    proof = metadata.evidence[MODEL]
    assert proof.unsure
    assert MODEL in metadata.unsure()
    assert proof.doubt
    assert proof.runner_up is not None
    assert {proof.value, proof.runner_up.value} == set(classes)
    assert proof.runner_up.where.startswith("train.py:")


@pytest.mark.parametrize(
    ("least", "left"), [(0.0, {"a", "iters", "iter_type"}), (0.75, {"a"}), (1.0, set())]
)
def test_values_below_a_confidence_are_left_out(least: float, left: set[str]) -> None:
    proofs = {MODEL: ("a", 0.8), ITERS: (3, 0.9), "training_config.iter_type": ("step", 0.7)}
    metadata = WorkloadMetadata.model_validate(
        {
            "job_kind": "training",
            "model_config": {"model_name": "a"},
            "training_config": {"iters": 3, "iter_type": "step"},
            "evidence": {
                name: {"value": value, "source": "code", "confidence": confidence}
                for name, (value, confidence) in proofs.items()
            },
        }
    )
    kept, left_out = metadata.without_unsure(least)
    values = {"a": kept.model.model_name, "iters": kept.training.iters}
    values["iter_type"] = kept.training.iter_type
    assert {name for name, value in values.items() if value is not None} == left
    assert {*left_out} == proofs.keys() - kept.evidence.keys()
    assert kept.job_kind == "training"


def test_fitted_doubts_have_words() -> None:
    facts = {name for model in fitted_weights().values() for name in model.facts}
    words = load("agent/fields/doubts.yaml")
    assert words.keys() - facts <= {"", "a low prior"}
    model = fitted_weights()[MODEL]
    assert doubt_of(model, 5, {"said again": 1}) == words["a low prior"]
    assert words["others"] in doubt_of(model, 90, {"others": 1, "said again": 1})
