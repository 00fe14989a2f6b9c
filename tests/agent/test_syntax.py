"""What is parsed as source code, and what is too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.syntax import MAX_NAME, has_long_word


@given(
    st.text("a (", max_size=25),
    st.integers(MAX_NAME - 15, MAX_NAME + 15),
    st.sampled_from(["", ".", " b", "\n"]),
)
def test_a_name_is_too_long_wherever_it_stands(before: str, length: int, after: str) -> None:
    text = f"{before} {'n' * length}{after}"

    assert has_long_word(text) == (length > MAX_NAME)
