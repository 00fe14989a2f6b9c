"""The command that GNU parallel runs first."""

from __future__ import annotations

import re

from schedmate.agent.launch.state import token
from schedmate.agent.values import Unknown, Value


def first_of_many(words: list[Value]) -> list[Value]:
    """The first command of `parallel command {} ::: a b c`."""
    texts = [token(word) for word in words]
    ends = [n for n, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    if not ends:
        return words
    inputs = [words[n + 1] for n in ends if n + 1 < len(words) and texts[n] != "::::"]
    command = words[: ends[0]]
    filled = [_filled(word, inputs) for word in command]
    has_placeholder = [token(word) for word in filled] != texts[: ends[0]]
    return filled if has_placeholder else [*command, *inputs]


def _filled(word: Value, inputs: list[Value]) -> Value:
    text = token(word)
    for number, item in enumerate(inputs, start=1):
        text = text.replace(f"{{{number}}}", token(item))
    if inputs:
        text = text.replace("{}", token(inputs[0]))
    same = text == token(word) or isinstance(word.data, Unknown)
    return word if same else Value(text, word.origin)
