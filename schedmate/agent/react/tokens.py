"""What a line of code or configuration says, apart from what is written about it.

Comments, docstrings and prose are left out: a value that stands only there is not what runs.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import PurePosixPath

from schedmate.agent.syntax import parse

CODE = frozenset({".py"})
CONFIG = frozenset(
    {".yaml", ".yml", ".json", ".jsonc", ".toml", ".ini", ".cfg", ".conf", ".gin", ".args"}
)
SCRIPT = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".zsh", ".mk"})
READABLE = CODE | CONFIG | SCRIPT
PROSE_WORDS = 4
"""A string of more words is a sentence: nothing in it counts as a value of the program."""

_NO_TOKENS = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_COMMENT = re.compile(r"(^|\s)(#|//|;\s).*$")
_BARE = re.compile(r"[^\s,:=\[\]{}()\"'<>|&;$`]+")


def readable(path: str) -> bool:
    """Whether a file of that name can be what a job runs or is configured by."""
    name = PurePosixPath(path)
    return name.suffix.lower() in READABLE or name.name in ("Makefile", "makefile")


def tokens(path: str, lines: list[str]) -> dict[int, list[str]]:
    """The names, numbers and strings of each line that has any, by 1-based line number."""
    if PurePosixPath(path).suffix.lower() in CODE:
        return _python(lines)
    return _plain(lines)


def _python(lines: list[str]) -> dict[int, list[str]]:
    source = "\n".join(lines) + "\n"
    hidden = _docstrings(source)
    found: dict[int, list[str]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NAME, tokenize.NUMBER):
                found.setdefault(token.start[0], []).append(token.string)
            elif token.type == tokenize.STRING and token.start not in hidden:
                found.setdefault(token.start[0], []).extend(_string(token.string))
            elif token.type not in _NO_TOKENS and "MIDDLE" in tokenize.tok_name[token.type]:
                # the literal parts of an f-string, from Python 3.12 on
                found.setdefault(token.start[0], []).extend(_literal(token.string))
    except (tokenize.TokenError, SyntaxError):
        # Python 2, or broken: what could be read up to there, then line by line.
        done = max(found, default=0)
        found |= {number: values for number, values in _plain(lines).items() if number > done}
    return found


def _docstrings(source: str) -> set[tuple[int, int]]:
    """Where strings start that are statements of their own: docstrings and disabled code."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _string(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text.lstrip("rRbBuUfF").strip("'\"")
    return _literal(value) if isinstance(value, str) else []


def _literal(value: str) -> list[str]:
    if len(value.split()) > PROSE_WORDS or "\n" in value.strip():
        return []
    return [value]


def _plain(lines: list[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for number, line in enumerate(lines, 1):
        values = [
            value
            for match in _QUOTED.finditer(line)
            for value in _literal(match[1] if match[1] is not None else match[2])
        ]
        stripped = _COMMENT.sub("", _QUOTED.sub(" ", line))
        bare = _BARE.findall(stripped)
        key, colon, rest = stripped.partition(":")
        # `note: some long sentence` is prose as well, quoted or not.
        if colon and len(rest.split()) > PROSE_WORDS and not re.search(r"[-=\[{]", rest):
            bare = _BARE.findall(key)
        values.extend(bare)
        if values:
            found[number] = values
    return found
