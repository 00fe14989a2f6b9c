"""Lengths in other units than steps, whatever numbers a program or a model states."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.units import SAMPLE, STEP, TOKEN, Factor, Length, Unit, as_length, convert
from schedmate.jobs import Evidence, WorkloadMetadata

NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, 1e308, 0, True]))


def test_tokens_are_divided_by_batch_and_sequence() -> None:
    found = convert(
        1e9, TOKEN, Factor("batch", 512, "a.py:1"), Factor("sequence", 2048, "--seq 2048")
    )
    assert isinstance(found, Length)
    assert (found.value, found.unit) == (954, STEP)
    assert found.formula is not None
    assert found.formula.endswith(" = 954 steps")


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from([SAMPLE, TOKEN]))
def test_any_numbers_give_a_length_or_a_sentence(
    value: float, batch: float, sequence: float, unit: Unit
) -> None:
    found = convert(value, unit, Factor("batch", batch, ""), Factor("sequence", sequence, ""))
    if isinstance(found, Length):
        assert 1 <= found.value < math.inf
    else:
        assert found


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400])
@pytest.mark.parametrize("unit", ["step", "epoch", "token", None])
def test_what_is_no_length_is_none(value: float, unit: Unit | None) -> None:
    assert isinstance(convert(value, unit, Factor("b", 2, ""), Factor("s", 2, "")), str)


_BATCH = {"training_config": {"batch_size": 8, "per_device_batch_size": 8, "num_gpus": 4}}


@pytest.mark.parametrize(("line", "steps"), [(3, None), (7, 125)])
def test_the_batch_of_one_device_divides_nothing(line: int, steps: int | None) -> None:
    """It is that if it stands where the per-device batch stands."""
    proofs = {
        "training_config.batch_size": Evidence(value=8, source="config", file="x.yaml", line=3),
        "training_config.per_device_batch_size": Evidence(
            value=8, source="config", file="x.yaml", line=line
        ),
    }
    known = WorkloadMetadata.model_validate({**_BATCH, "evidence": proofs})
    found = as_length(1000, SAMPLE, known)
    assert (found.value if isinstance(found, Length) else None) == steps
