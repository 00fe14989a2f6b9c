"""Flags and files of a command that the program was not seen to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from schedmate.agent.configs.detectron import BASE, read_detectron
from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.fields import outside
from schedmate.agent.fields.leaves import leaves, normal
from schedmate.agent.fields.words import is_whole
from schedmate.agent.interp.libs.cli.flags import flag_origin, parse_flags
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Origin, Value
from schedmate.errors import InputError
from schedmate.paths import is_dir, is_file

_CONFIG_FLAG = re.compile(r"^-{0,2}\w*(config|cfg|recipe|preset)[\w-]*$", re.IGNORECASE)
_WRITTEN_FLAG = re.compile(r"out|save|log|dump|report|result|write", re.IGNORECASE)
_SETTINGS_FLAG = re.compile(r"-{1,2}(c|f|conf|opt|h?params|settings)")
_CONFIG_NAME = re.compile(r"[A-Za-z0-9][\w./-]*")
_DATA_FOLDER = re.compile(r"([\w.-]+/)*data(sets?|[-_]?bin)?/[\w./-]+", re.IGNORECASE)
_PAIR = re.compile(r"[A-Za-z_][\w.]*=[^=].*", re.DOTALL)
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
_MAX_NAME = 250
_CONFIGS = (".yaml", ".yml", ".json", ".jsonnet", ".toml", ".ini", ".cfg")
_FILES = (*_CONFIGS, ".py")


def add_settings(repo: Repo, trace: Trace, plan: LaunchPlan) -> None:
    """What the launcher configures, and flags and files of the command the program did not read.

    A program whose options or configuration are read by a library that could not be followed
    still means something by `--epochs 90` or `--config x.yaml`.
    """
    if plan.facts:
        trace.settings.append(Settings("launcher", Value(dict(plan.facts)), "config"))
    read = {settings.name for settings in trace.settings}
    composed = any(name in read for name in ("hydra", "lightning", "merged config"))
    whole = composed and not {"hydra", "lightning"}.isdisjoint(read)
    unread = [] if whole else [f for f in files_in(repo, plan, trace) if f[0] not in read]
    if not unread and (usual := outside.usual_files(plan)):
        named = replace(plan, argv=[Value(name, Origin("library", text=name)) for name in usual])
        unread = list(files_in(repo, named, trace))
    parsed = any(settings.kind in ("arguments", "dataclass") for settings in trace.settings)
    if unread or not (parsed or composed):
        trace.settings.append(Settings("command", from_argv(plan.argv), "arguments"))
    elif not composed:
        # flags whose declaration is in a library's dataclass or parser
        given = from_argv(plan.argv)
        known = {
            normal(".".join(setting.path[-length:]))
            for setting in leaves(trace)
            if setting.value.known and setting.value.data is not None
            for length in range(1, 5)
        }
        rest = _without(given, known)
        if rest:
            trace.settings.append(Settings("command", Value(rest), "arguments"))
    for name, value in unread:
        trace.settings.append(Settings(name, value, "config"))
    trace.settings.extend(outside.settings(plan, from_argv(plan.argv), [v for _, v in unread]))


def _without(given: Value, known: set[str], above: str = "") -> dict[Any, Value]:
    """The flags that no known setting is named after, `a.b=c` by its whole path."""
    rest: dict[Any, Value] = {}
    for key, value in (given.mapping or {}).items():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value.data, dict):
            inner = _without(value, known, path)
            if inner:
                rest[key] = Value(inner, value.origin)
        elif normal(path) not in known:
            rest[key] = value
    return rest


def from_argv(argv: list[Value]) -> Value:
    """The flags as a mapping; `key=value` tokens count as flags too."""
    found: dict[object, Value] = {}
    flags, loose = parse_flags(argv)
    if loose and isinstance(loose[0].data, str) and is_whole(loose[0].data):
        found["model"] = loose[0]  # `run.py ppo --env ...`
    for name, values, flag in flags:
        origin = flag_origin(flag)
        if values and isinstance(values[0].data, str):
            found[name.replace("-", "_")] = wrap(parse_scalar(values[0].data), origin)
            loose.extend(values if _PAIR.fullmatch(values[0].data) else values[1:])
        else:
            found[name.replace("-", "_")] = Value(True, origin)
    for token, following in zip(loose, [*loose[1:], Value(None)], strict=False):
        if isinstance(token.data, str) and "." in token.data and "=" not in token.data:
            # yacs-style pairs: SOLVER.MAX_ITER 1000
            paired = isinstance(following.data, str) and "=" not in following.data
            if paired and _KEY.fullmatch(token.data) and not token.data.endswith(_FILES):
                _put(found, token.data, wrap(parse_scalar(following.text or ""), following.origin))
        if isinstance(token.data, str) and "=" in token.data:
            key, _, text = token.data.partition("=")
            _put(found, key.lstrip("+~"), wrap(parse_scalar(text), token.origin))
        elif isinstance(token.data, str) and _DATA_FOLDER.fullmatch(token.data):
            found.setdefault("data", token)  # `train-tool data-bin/wikitext-103 --task ...`
    return Value(found)


def _put(found: dict[object, Value], dotted: str, value: Value) -> None:
    *parents, last = dotted.split(".")
    place = found
    for parent in parents:
        inner = place.setdefault(parent, Value({}))
        if not isinstance(inner.data, dict):
            return
        place = inner.data
    place[last] = value


def files_in(repo: Repo, plan: LaunchPlan, trace: Trace) -> Iterator[tuple[str, Value]]:
    """Configuration files of the repository that the command names, by path or by name."""
    root = repo.root
    before = ""
    for token in plan.argv:
        flag, _, text = (token.data if isinstance(token.data, str) else "").rpartition("=")
        flag = flag or before
        path = _config_file(root, plan, text, flag)
        before = text if text.startswith("-") else ""
        if path is None:
            name = f"/{text.rpartition('/')[2]}"
            elsewhere = any(f"/{settings.name}".endswith(name) for settings in trace.settings)
            if _is_read(text, flag) and not elsewhere:
                trace.warn(repo.missing_settings(text))
            continue
        try:
            config = read_config(path, root, variables=plan.env)
            if isinstance(config.data, dict) and BASE in config.data:
                config = read_detectron(path, root)
            if isinstance(config.data, list) and path.suffix == ".json":
                continue  # records, as data has
            yield path.resolve().relative_to(root).as_posix(), config
        except (InputError, ValueError) as error:
            trace.warn(str(error))


def _is_read(text: str, flag: str) -> bool:
    """Whether a file is a configuration that the program reads; JSON holds data as well."""
    if text.endswith(".json"):
        return bool(not flag or _CONFIG_FLAG.search(flag) or _SETTINGS_FLAG.fullmatch(flag))
    return text.endswith(_CONFIGS) and not _WRITTEN_FLAG.search(flag)


def _config_file(root: Path, plan: LaunchPlan, text: str, flag: str) -> Path | None:
    if len(text) > _MAX_NAME:
        return None
    if text.endswith(_CONFIGS):
        folders = [root / plan.cwd, root]
        # `-d configs 125M.yml`: the files are in a folder that another word names
        words = [token.data for token in plan.argv if isinstance(token.data, str)]
        named = [word for word in words if _CONFIG_NAME.fullmatch(word) and len(word) <= _MAX_NAME]
        folders += [path for word in named if is_dir(path := root / plan.cwd / word)]
        return next((f / text for f in folders if is_file(f / text)), None)
    if not _CONFIG_FLAG.search(flag) or not _CONFIG_NAME.fullmatch(text) or ".." in text:
        return None
    # `--config llama/1B_lora`, a name that a library looks up in its folders
    stem = text.rpartition("/")[2]
    found = [
        path
        for path in islice(root.rglob(f"{stem}.y*ml"), 20)
        if path.with_suffix("").as_posix().endswith(f"/{text}")
    ]
    return found[0] if len(found) == 1 else None
