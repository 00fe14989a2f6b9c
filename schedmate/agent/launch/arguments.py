"""Arguments that a launcher is given otherwise than the program it starts reads them."""

from __future__ import annotations

import re

from schedmate.agent.launch.state import token
from schedmate.agent.values import Unknown, Value

_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


def first_of_many(words: list[Value]) -> list[Value]:
    """`parallel command {} ::: a b c`: the first of the commands it runs."""
    texts = [token(word) for word in words]
    ends = [n for n, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    if not ends:
        return words
    inputs = [words[n + 1] for n in ends if n + 1 < len(words) and texts[n] != "::::"]
    command = words[: ends[0]]
    filled = [_filled(word, inputs) for word in command]
    told = [token(word) for word in filled] != texts[: ends[0]]
    return filled if told else [*command, *inputs]


def _filled(word: Value, inputs: list[Value]) -> Value:
    text = token(word)
    for number, given in enumerate(inputs, start=1):
        text = text.replace(f"{{{number}}}", token(given))
    if inputs:
        text = text.replace("{}", token(inputs[0]))
    same = text == token(word) or isinstance(word.data, Unknown)
    return word if same else Value(text, word.origin)


def flags_of_pairs(words: list[Value]) -> list[Value]:
    """`epochs=5` as `--epochs=5`, for launchers that give settings to a program as its flags."""
    return [
        Value(f"--{word.data}", word.origin)
        if isinstance(word.data, str) and _PAIR.fullmatch(word.data)
        else word
        for word in words
    ]
