"""Parsing source code that is not all valid in this version of Python."""

from __future__ import annotations

import ast
import re
import sys
from typing import Protocol

from schedmate.agent.syntax import TooMuchSource, parse

MAX_REPAIRS = 60
MAX_PARSED = 5_000_000
"""Characters parsed of one file together, while it is repaired."""


class Reader(Protocol):
    """Hears of what is read."""

    def warns(self, message: str) -> None:
        """Something cannot be read."""

    def parses(self, file: str, text: str) -> None:
        """A file of source code is read."""


def decode(raw: bytes) -> str:
    """Source text whatever its encoding: UTF-8, else Latin-1."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse_tolerant(text: str, file: str, reader: Reader) -> ast.Module | None:
    """Parse, replacing statements that are not valid in this version of Python by `pass`."""
    lines = text.split("\n")
    first_error: SyntaxError | None = None
    for _ in range(max(1, min(MAX_REPAIRS, MAX_PARSED // (len(text) + 1)))):
        try:
            tree = parse("\n".join(lines))
        except SyntaxError as error:
            first_error = first_error or error
            number = min(error.lineno or 1, len(lines)) - 1
            line = lines[number]
            repaired = _repair(line)
            if repaired == line:
                break
            if repaired.strip() == "pass":
                for rest in range(number + 1, _statement_end(lines, number) + 1):
                    lines[rest] = ""
            lines[number] = repaired
        except TooMuchSource as error:
            reader.warns(f"{file}: {error}, left out")
            return None
        except (ValueError, RecursionError, MemoryError):
            reader.warns(f"{file}: cannot be parsed, left out")
            return None
        else:
            if first_error is not None:
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                reader.warns(
                    f"{file}:{first_error.lineno}: not valid Python {version}, left out what is not"
                )
            return tree
    line_number = first_error.lineno if first_error else 1
    reader.warns(f"{file}:{line_number}: syntax error, the file is left out")
    return None


def parse_statements(function: str, file: str, reader: Reader) -> list[ast.stmt]:
    """The body of the one function of a source, without what is not valid in it."""
    tree = parse_tolerant(function, file, reader)
    if tree is None or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return tree.body[0].body


_STRING = re.compile(r"""'(?:\\.|[^'\\])*+(?:'|$)|"(?:\\.|[^"\\])*+(?:"|$)|#.*""")
_LONGEST = 40
"""Lines of a statement, of which no more are looked through for its end."""


def _statement_end(lines: list[str], start: int) -> int:
    """The last line of the statement that begins at `start`, by its brackets and backslashes.

    `start` itself where the brackets do not close.
    """
    depth = 0
    for number in range(start, min(len(lines), start + _LONGEST)):
        bare = _STRING.sub("", lines[number]).rstrip()
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
        if depth <= 0 and not bare.endswith("\\"):
            return number
    return start


def _repair(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    stripped = line.strip()
    old_except = re.match(r"except\s++([\w.()\s,]++):(.*)$", stripped)
    kinds, comma, name = old_except[1].rpartition(",") if old_except else ("", "", "")
    if old_except and comma and name.strip().isidentifier():
        return f"{indent}except {kinds.rstrip()} as {name.strip()}:{old_except[2]}"
    reserved = re.sub(r"\b(async|await)(?=\s*=[^=])", r"\1_", stripped)
    if reserved != stripped:
        return indent + reserved  # an argument's name before Python 3.7: `x.cuda(async=True)`
    generic = re.sub(r"^((?:async\s+def|def|class)\s+\w+)\[[^\]]*\]", r"\1", stripped)
    if generic != stripped:
        # type parameters and type aliases are newer than the running Python may be
        return indent + generic
    if re.match(r"type\s+\w+", stripped):
        return indent + re.sub(r"^type\s+(\w+)(\[[^\]]*\])?", r"\1", stripped)
    if not stripped or stripped == "pass" or re.match(r"(el|except|finally)", stripped):
        return line
    if stripped.endswith(":"):
        return f"{indent}if True:" if stripped != "if True:" else line
    return f"{indent}pass"
