"""What is wrong in a document is said in its words, not in those of the validator."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schedmate.base.inputs import fault_sentence, first_fault


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    lowest: Annotated[int, Field(ge=0)] = 0
    under: Annotated[float, Field(lt=5, allow_inf_nan=False)] = 1.0
    where: Literal["off", "comment"] = "off"
    name: str = ""
    on: bool = True
    several: list[int] = []

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str) -> str:
        if "!" in value:
            raise ValueError(f"{value!r} has a mark in it")
        return value


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")
    order: Part = Part()
    needed: int


def fault(document: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(document)
    return caught.value


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "needed is missing"),
        ({"order": {}, "needed": "x"}, "needed: 'x' is given; it has to be a whole number"),
        ({"needed": 1.5}, "needed: 1.5 is given; it has to be a whole number"),
        ({"needed": 1, "ordr": {}}, "there is no key ordr; did you mean order?"),
        ({"needed": 1, "order": []}, "it has to be an object with keys and values"),
        (
            {"needed": 1, "order": {"lowest": -1}},
            "order.lowest: -1 is given; it has to be at least",
        ),
        ({"needed": 1, "order": {"under": 5}}, "order.under: 5 is given; it has to be less than 5"),
        ({"needed": 1, "order": {"under": float("nan")}}, "nan is given; it has to be a finite"),
        ({"needed": 1, "order": {"where": "on"}}, "it has to be 'off' or 'comment'"),
        ({"needed": 1, "order": {"name": "a!"}}, "order.name: 'a!' has a mark in it"),
        ({"needed": 1, "order": {"name": 3}}, "order.name: 3 is given; it has to be text"),
        ({"needed": 1, "order": {"on": "x"}}, "'x' is given; it has to be true or false"),
        ({"needed": 1, "order": {"several": [1, "x"]}}, "order.several.1: 'x' is given"),
        ({"order": 3, "needed": "x"}, "(1 more)"),
        ("[]", "the file: '[]' is given; it has to be an object with keys and values"),
    ],
)
def test_the_first_fault_in_a_document(document: Any, says: str) -> None:
    found = fault_sentence(fault(document), Whole.model_fields, place="the file")
    assert says in found
    assert found.endswith((".", "?"))


def test_text_that_is_no_json() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate_json("{not json")
    found = first_fault(caught.value, place="the line")
    assert found.startswith("the line is no JSON: key must be")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200)


@given(
    st.dictionaries(
        st.sampled_from(["order", "needed", "other"]),
        VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(
            st.sampled_from([*Part.model_fields, "more"]), VALUES | st.lists(VALUES, max_size=2)
        ),
    )
)  # fmt: skip
def test_no_document_gets_the_validators_words(document: dict[str, Any]) -> None:
    try:
        Whole.model_validate(document)
    except ValidationError as error:
        found = first_fault(error, Whole.model_fields)
        assert not re.search("[Ii]nput should|Extra inputs|Field required|Value error", found)
        assert "\n" not in found
        assert len(found) < 600
