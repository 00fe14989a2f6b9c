"""The files of one job taken apart, each once: words by line, and syntax trees."""

from __future__ import annotations

import ast

from schedmate.agent.react.tokens import syntax_tree, tokens
from schedmate.tools import RepoFiles


class Sources:
    """What the files of a repository say; kept as long as the object, which is for one job."""

    def __init__(self, files: RepoFiles) -> None:
        self._files = files
        self._tokens: dict[str, dict[int, list[str]] | None] = {}
        self._trees: dict[str, ast.Module] = {}

    def tokens(self, path: str) -> dict[int, list[str]] | None:
        """The names, numbers and strings of each line of a file; None where it may not be read."""
        if path not in self._tokens:
            lines = self._files.lines(path)
            self._tokens[path] = None if lines is None else tokens(path, lines)
        return self._tokens[path]

    def tree(self, path: str) -> ast.Module:
        """A file's syntax tree, empty where it has none."""
        if path not in self._trees:
            lines = self._files.lines(path) or []
            self._trees[path] = syntax_tree(lines) or ast.Module([], [])
        return self._trees[path]
