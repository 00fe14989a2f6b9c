"""The values on a line of code or configuration, without comments and prose.

Comments, docstrings and prose are left out: a value that occurs only there has no effect.
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
"""A string of more words is a sentence, which contains no values of the program."""

_NO_TOKENS = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_SPEAKING = frozenset(
    {"print", "log", "debug", "info", "warning", "warn", "error", "exception", "critical", "write"}
)
_FOR_PEOPLE = frozenset({"help", "description", "epilog", "usage", "title", "msg", "message"})
_TRIPLE = re.compile(r"\"\"\"|'''")
_BLOCK = re.compile(r"(?::|^\s*-|-)\s+[|>][+-]?\d?\s*(?:#.*)?$")
_PRINTED = re.compile(r"\s*(?:cat|:)\s+<<-?\s*['\"\\]?(\w+)['\"]?\s*$")
_ECHO = re.compile(r"\s*(?:echo|printf)\s")
_KEY = re.compile(r"(?<![^\s,:=\[\]{}()\"'<>|&;$`])([^\s,:=\[\]{}()\"'<>|&;$`]++)[\"']?\s*+[:=]")
_COMMENT = re.compile(r"(^|\s)(#|//|;\s).*$")
_BARE = re.compile(r"[^\s,:=\[\]{}()\"'<>|&;$`]+")


def readable(path: str) -> bool:
    """Whether a file of that name can be run by a job or configure it."""
    name = PurePosixPath(path)
    return name.suffix.lower() in READABLE or name.name in ("Makefile", "makefile")


def tokens(path: str, lines: list[str]) -> dict[int, list[str]]:
    """The names, numbers and strings of each line that has any, by 1-based line number."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in CODE:
        return _python(lines)
    return _plain(lines, config=suffix in CONFIG)


def _python(lines: list[str]) -> dict[int, list[str]]:
    source = _source(lines)
    hidden = said(syntax_tree(lines))
    found: dict[int, list[str]] = {}
    done = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NAME, tokenize.NUMBER):
                found.setdefault(token.start[0], []).append(token.string)
            elif token.type == tokenize.STRING and token.start not in hidden:
                found.setdefault(token.start[0], []).extend(_string(token.string))
            elif token.type not in _NO_TOKENS and "MIDDLE" in tokenize.tok_name[token.type]:
                # the literal parts of an f-string, from Python 3.12 on
                found.setdefault(token.start[0], []).extend(_literal(token.string))
            done = max(done, token.end[0])
    except (tokenize.TokenError, SyntaxError):
        # Python 2, or broken: what could be read up to there, then line by line.
        rest = _plain(lines, config=False)
        found |= {number: values for number, values in rest.items() if number > done}
    return found


def syntax_tree(lines: list[str]) -> ast.Module | None:
    """The syntax tree of a program's lines; None if it is Python 2, invalid or too large."""
    try:
        return parse(_source(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _source(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def said(tree: ast.Module | None) -> set[tuple[int, int]]:
    """Positions of strings for people: docstrings, disabled code, help and messages."""
    found: set[tuple[int, int]] = set()
    for node in ast.walk(tree) if tree is not None else ():
        spoken: list[ast.AST] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            spoken = [node.value]
        elif isinstance(node, ast.Call):
            spoken = [word.value for word in node.keywords if word.arg in _FOR_PEOPLE]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            if (called.id if isinstance(called, ast.Name) else called) in _SPEAKING:
                spoken += node.args
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            spoken = list(node.exc.args)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            spoken = [node.msg]
        found |= {
            (one.lineno, one.col_offset)
            for one in spoken
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        }
    return found


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


def _plain(lines: list[str], *, config: bool) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    texts = _texts(lines, config)
    for number, line in enumerate(lines, 1):
        if number in texts or _ECHO.match(line):
            continue
        values = [
            value
            for match in _QUOTED.finditer(line)
            for value in _literal(match[1] if match[1] is not None else match[2])
        ]
        stripped = _COMMENT.sub("", _QUOTED.sub(" ", line))
        bare = _BARE.findall(stripped)
        key, colon, rest = stripped.partition(":") if config else (stripped, "", "")
        # `note: some long sentence` is prose as well, quoted or not.
        if colon and _is_prose(rest):
            bare = _BARE.findall(key)
        values.extend(bare)
        if values:
            found[number] = values
    return found


def _is_prose(text: str) -> bool:
    """Whether a plain value is a sentence, not a command with its flags or a list."""
    if text.lstrip().startswith(("[", "{")):
        return False
    words = text.split()
    before = ["", *words]
    plain = [
        word
        for word, last in zip(words, before, strict=False)
        if not word.startswith("-") and "=" not in word.strip("=") and not last.startswith("-")
    ]
    return len(plain) > PROSE_WORDS


def _texts(lines: list[str], config: bool) -> set[int]:
    """Numbers of lines inside a text: triple quotes, YAML block scalars, printed here-documents."""
    inside: set[int] = set()
    quote = end = ""
    block = -1  # indentation of the key whose block scalar this is
    for number, line in enumerate(lines, 1):
        if quote:
            inside.add(number)
            quote = "" if quote in line else quote
        elif end:
            inside.add(number)
            end = "" if line.strip() == end else end
        elif block >= 0 and (not line.strip() or len(line) - len(line.lstrip()) > block):
            inside.add(number)
        else:
            block = -1
            opened = _TRIPLE.search(line)
            if opened and line.count(opened[0]) % 2:
                quote = opened[0]
            elif here := _PRINTED.match(line):
                end = here[1]
            elif config and _BLOCK.search(line):
                block = len(line) - len(line.lstrip())
    return inside


def named(path: str, lines: list[str]) -> set[str]:
    """The words by which a file names others: its imports, strings and values.

    Names of its own variables do not count: a variable `loss` is no reason to read loss.py.
    """
    suffix = PurePosixPath(path).suffix.lower()
    found = tokens(path, lines)
    if suffix in CONFIG:
        keys = {number: set(_KEY.findall(line)) for number, line in enumerate(lines, 1)}
        return {v for n, values in found.items() for v in values if v not in keys[n]}
    tree = syntax_tree(lines) if suffix in CODE else None
    if tree is None:
        return {value for values in found.values() for value in values}
    hidden, words = said(tree), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            words |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            words |= {f"{module}.{alias.name}".strip(".") for alias in node.names}
            words |= {module} - {""}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if (node.lineno, node.col_offset) not in hidden:
                words |= set(_literal(node.value))
    return words
