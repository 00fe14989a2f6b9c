"""What a reader cannot see is written as an escape."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.terminal import is_visible, quoted_name, visible


def test_invisible_characters_become_escapes() -> None:
    assert visible("a\x1b[31mb\u202ec\u200bd\U000e0041e\ufe0f") == (
        r"a\x1b[31mb\u202ec\u200bd\U000e0041e\ufe0f"
    )


def test_code_in_any_language_stays_as_it_is() -> None:
    text = "def größe(x):\n\treturn '数据' + '🙂'  # naïve\n"
    assert visible(text) == text


def test_plain_names_are_not_quoted() -> None:
    assert quoted_name("configs/gpt-2_b.yaml") == "configs/gpt-2_b.yaml"
    assert quoted_name("datos/año.py") == "datos/año.py"


def test_a_name_of_several_lines_is_one_word() -> None:
    assert quoted_name("a\nerror: b") == '"a\\nerror: b"'


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert all(c in "\t\n" or is_visible(c) for c in visible(text))
    assert visible(visible(text)) == visible(text)


@given(st.text(st.characters(exclude_categories=[]), min_size=1))
def test_a_quoted_name_copied_into_json_names_the_same_file(name: str) -> None:
    word = quoted_name(name)
    assert all(map(is_visible, word))
    assert "\n" not in word
    assert word == name or json.loads(word) == name
