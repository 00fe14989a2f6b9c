"""Jsonnet, the language of AllenNLP's configurations, to `Value` trees, by the library rjsonnet.

The library evaluates a file as a whole and fails as a whole. Where it fails, each field is
evaluated by itself, so that one missing variable or import costs its own fields only. It reports
values without places: where a key and its value stand is looked up in the files that were read.
"""

from __future__ import annotations

import json
import os
import re
import signal
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from schedmate.agent.configs.trees import (
    MAX_BYTES,
    MAX_DEPTH,
    ConfigError,
    Source,
    ensure_bounded,
    load_source,
)
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.base.confine.limits import Limits, keep_limits

MAX_IMPORTS = 50
MAX_EVALUATIONS = 200
"""Most evaluations of one file whose whole cannot be evaluated."""
MAX_ERROR = 2000
CPU_S = 2.0
WALL_S = 10.0
MEMORY_MB = 256
"""What one evaluation may use [MiB], beyond what the process has."""
MAX_STACK = 200
"""Deepest calls of a configuration's functions."""

_ONLY_JSONNET = re.compile(
    r"^[ \t]*+local\s++\w++\s*+[=(]|\bstd\.\w++\(|^[ \t]*+import\s", re.MULTILINE
)
_KEY = re.compile(r"""(?<![\w.-])([\w.-]++)["']?\]?+[ \t]*+\+?:{1,3}(?!:)""")
_SHAPE = "if std.isObject(v) then std.objectFields(v) else if std.isArray(v) then std.length(v)"
_PLACE = re.compile(r"(?<![^\s:])([^\s:]++):(\d++):\d")

_Path = tuple[str | int, ...]


class _FailedError(ConfigError):
    """The library could not evaluate an expression; another one of the same file may do."""


def is_jsonnet(source: Source) -> bool:
    """Whether a text says what JSON cannot: definitions, imports, calls of the library."""
    return _ONLY_JSONNET.search(source.text) is not None


def read_jsonnet(source: Source, root: Path, variables: Mapping[str, Value] | None = None) -> Value:
    """The value of a Jsonnet text; `variables` are what `std.extVar` finds.

    Raises ConfigError, with file and line where known, for broken syntax, for what is too large,
    and where the extra `jsonnet` is not installed.
    """
    if find_spec("rjsonnet") is None:
        raise source.error("is Jsonnet, which needs: pip install 'schedmate[jsonnet]'")
    files = _Files(source, root)
    variables_as_data = {name: value.data for name, value in (variables or {}).items()}
    texts = {name: text for name, text in variables_as_data.items() if isinstance(text, str)}
    return ensure_bounded(_Reading(files, texts).value(), source.name or "the text")


class _Files:
    """The files that one configuration consists of; none outside the repository is opened."""

    def __init__(self, source: Source, root: Path) -> None:
        self.main = source
        self.read: dict[Path, Source] = {}
        self.keys: dict[Path, _Keys] = {}
        self._root = root
        self._keep(source)

    def error(self, message: str) -> _FailedError:
        """What the library says, at the first place of our files that it names."""
        reason, _, trace = message.partition("\n")
        for name, line in _PLACE.findall(trace):
            if source := self.read.get(Path(name)):
                return _FailedError(str(source.error(reason, int(line))))
        return _FailedError(str(self.main.error(reason)))

    def imported(self, folder: str, name: str) -> tuple[str, str]:
        """Resolved path and text of what a file in `folder` imports, as the library asks for it."""
        path = (Path(folder) / name).resolve()
        if path not in self.read:
            if len(self.read) > MAX_IMPORTS:
                raise ConfigError(f"{name}: more than {MAX_IMPORTS} files are imported")
            self.add(path)
        return str(path), self.read[path].text

    def add(self, path: Path) -> None:
        """Read one more file, if it is not there. Raises ConfigError, as `load` does."""
        if path not in self.read:
            self._keep(load_source(path, self._root))

    def _keep(self, source: Source) -> None:
        _ensure_shallow(source)
        self.read[source.path] = source
        self.keys[source.path] = _Keys(source)


class _Reading:
    """The evaluation of one configuration, whole or field by field."""

    def __init__(self, files: _Files, variables: dict[str, str]) -> None:
        self._files = files
        self._variables = variables
        self._left = MAX_EVALUATIONS

    def value(self, path: _Path = ()) -> Value:
        """What stands at `path`, with unknowns for what cannot be evaluated.

        Raises ConfigError where the file as a whole has no value.
        """
        try:
            return self._placed(self._evaluate("v", path), path)
        except _FailedError as error:
            parts = self._parts(path)
            if parts is None and not path:
                raise
            return Value(Unknown(str(error)) if parts is None else parts, self._origin(path))

    def _parts(self, path: _Path) -> dict[Any, Value] | list[Value] | None:
        """The items at `path`, each evaluated by itself; None where it has none."""
        if len(path) > MAX_DEPTH:
            return None
        try:
            shape = self._evaluate(_SHAPE, path)
        except _FailedError:
            return None
        if isinstance(shape, list):
            return {name: self.value((*path, name)) for name in shape}
        if not isinstance(shape, int) or not 0 < shape <= self._left:
            return None
        return [self.value((*path, n)) for n in range(shape)]

    def _evaluate(self, expression: str, path: _Path) -> Any:
        """`expression`, in which `v` is what stands at `path`."""
        main = self._files.main
        if self._left <= 0:
            raise self._files.error(f"needs more than {MAX_EVALUATIONS} evaluations")
        self._left -= 1
        selected = "".join(f"[{json.dumps(part)}]" for part in path)
        text = f"local v = (import {json.dumps(str(main.path))}){selected}; {expression}"
        answer = _apart(lambda: self._answer(text))
        if answer is None:
            raise main.error(f"takes more than {MEMORY_MB} MiB or {CPU_S:g} s to evaluate")
        for path_read in answer["read"]:
            self._files.add(Path(path_read))
        if "error" in answer:
            raise self._files.error(answer["error"])
        return answer["value"]

    def _answer(self, text: str) -> dict[str, Any]:
        """What the library makes of a text, and the files that it read for it."""
        import rjsonnet

        try:
            answer = rjsonnet.evaluate_snippet(
                "",
                text,
                max_stack=MAX_STACK,
                ext_vars=self._variables,
                import_callback=self._files.imported,
            )
            report: dict[str, Any] = {"value": json.loads(answer)}
        except (RuntimeError, ValueError, RecursionError) as error:
            report = {"error": str(error)[:MAX_ERROR]}
        return report | {"read": [str(one) for one in self._files.read]}

    def _placed(self, data: Any, path: _Path) -> Value:
        origin = self._origin(path, data)
        if isinstance(data, dict):
            items = {key: self._placed(item, (*path, key)) for key, item in data.items()}
            return Value(items, origin)
        if isinstance(data, list):
            return Value([self._placed(item, (*path, n)) for n, item in enumerate(data)], origin)
        return Value(data, origin)

    def _origin(self, path: _Path, data: object = None) -> Origin:
        """Where `path` stands, as far as its keys tell; the file's first line where they do not."""
        keys = [part for part in path if isinstance(part, str)]
        literal = None if data is None or isinstance(data, dict | list) else json.dumps(data)
        origins = (file.origin(keys, literal) for file in self._files.keys.values())
        return next(filter(None, origins), self._files.main.origin(1))


def _apart(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What `work` gives, done in a copy of this process; None where that had to be ended.

    The library has no limits: a few lines can ask for more memory than there is, and
    then it ends the process that it runs in.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiver)
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 2)  # where it says that it ends
            keep_limits(Limits(cpu_s=CPU_S, memory_mb=MEMORY_MB), WALL_S)
            answer = json.dumps(work()).encode()
            while answer:
                answer = answer[os.write(sender, answer) :]
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as stream:
        answer = stream.read(MAX_BYTES + 1)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        report: dict[str, Any] = json.loads(answer)
    except ValueError:
        return None
    return report


class _Keys:
    """The lines on which the keys of a Jsonnet file stand, to cite them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = source.text.split("\n")
        self._places: dict[str, list[tuple[int, int]]] = {}
        for line, text in enumerate(self._lines):
            for key in _KEY.finditer(text):
                self._places.setdefault(key[1], []).append((line, key.end()))

    def origin(self, keys: list[str], literal: str | None) -> Origin | None:
        """The first place of the last key after the others, with the value `literal` if any."""
        at = (0, 0)
        for key in keys[:-1]:
            places = self._places.get(key, [])
            index = bisect_left(places, at)
            at = places[index] if index < len(places) else at
        places = self._places.get(keys[-1], []) if keys else [(0, 0)]
        after = places[bisect_left(places, at) :][:MAX_IMPORTS] or places[:1]
        with_value = [
            (line, end) for line, end in after if literal and literal in self._lines[line][end:]
        ]
        return self._source.origin((with_value or after)[0][0] + 1) if after else None


def _ensure_shallow(source: Source) -> None:
    """Refuse brackets within brackets so deep that the library's parser would use up its stack."""
    depth = 0
    for line, text in enumerate(source.text.split("\n"), 1):
        for sign in text:
            depth = max(0, depth + (sign in "[{(") - (sign in "]})"))
            if depth > MAX_DEPTH:
                raise source.error(f"nests deeper than {MAX_DEPTH} levels", line)
