"""Plain values of options without Pydantic, by which Typer converts them all.

Loading it takes a command as long as NumPy does, and most of what is given, or is not, is text that
stays as it is. Whatever is not plainly what it should be goes Typer's own way, errors above all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOT_PLAIN = object()
"""The answer where Typer has to convert a value itself."""


def convert(value: Any, annotation: Any, info: Any, *, several: bool = False) -> Any:
    """What Typer would make of a value given for an option; `NOT_PLAIN` where that is not plain.

    Args:
        value: text, the default, or None where nothing was given.
        annotation: the type of the parameter, without None.
        info: Typer's description of it (`ParameterInfo`).
        several: whether it can be given more than once.
    """
    if value is None:
        return () if several else None
    if info.parser is not None or getattr(info, "click_type", None) is not None:
        return NOT_PLAIN
    if annotation == list[str]:
        many = several and isinstance(value, list | tuple)
        return list(value) if many and all(map(_is_plain, value)) else NOT_PLAIN
    if several:
        return NOT_PLAIN
    if annotation is str:
        return value if _is_plain(value) else NOT_PLAIN
    if annotation is Path:
        return _path(value, info)
    if annotation in (int, float) and type(value) is annotation:
        fits = (info.min is None or value >= info.min) and (info.max is None or value <= info.max)
        return value if fits else NOT_PLAIN
    return NOT_PLAIN


def _is_plain(value: Any) -> bool:
    return type(value) is str and value.isascii()


def _path(value: Any, info: Any) -> Any:
    asked = info.resolve_path or info.writable or info.exists or info.allow_dash
    if asked or info.path_type or not (info.file_okay and info.dir_okay):
        return NOT_PLAIN
    if not (_is_plain(value) and value) or "\0" in value:
        return NOT_PLAIN
    path = Path(value)
    try:
        path.stat()
    except OSError:
        return path
    return path if not info.readable or os.access(path, os.R_OK) else NOT_PLAIN


class _Runtime:
    """Stands before Typer's own conversion of a parameter."""

    def __init__(self, whole: Callable[[], Any]) -> None:
        self._whole = whole

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        described = param.type_descriptor
        several = bool(param.multiple or param.nargs == -1)
        found = NOT_PLAIN
        if described.file_annotation is None and param.nargs in (1, -1):
            found = convert(value, described.annotation, described.parameter_info, several=several)
        return self._whole().coerce(value, param=param, ctx=ctx) if found is NOT_PLAIN else found


def install() -> None:
    """Have Typer convert plain values so, where it is as it was when this was written."""
    from typer import core

    kind = getattr(core, "_TyperParameter", None)
    usual = getattr(kind, "get_runtime_param", None)
    if kind is None or usual is None or hasattr(usual, "whole"):
        return

    def get_runtime_param(self: Any) -> Any:
        return _Runtime(lambda: usual(self))

    get_runtime_param.whole = usual  # type: ignore[attr-defined]
    kind.get_runtime_param = get_runtime_param
