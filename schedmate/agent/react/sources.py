"""The parsed files of one job, each parsed once: words by line, and syntax trees."""

from __future__ import annotations

import ast

from schedmate.agent.react.tokens import syntax_tree, tokens
from schedmate.tools import RepoFiles


class Sources:
    """The contents of a repository's files, cached for one job."""

    def __init__(self, files: RepoFiles) -> None:
        self._files = files
        self._tokens: dict[str, dict[int, list[str]] | None] = {}
        self._trees: dict[str, ast.Module] = {}

    def tokens(self, path: str) -> dict[int, list[str]] | None:
        """The names, numbers and strings of each line of a file; None if it may not be read."""
        if path not in self._tokens:
            lines = self._files.lines(path)
            self._tokens[path] = None if lines is None else tokens(path, lines)
        return self._tokens[path]

    def tree(self, path: str) -> ast.Module:
        """A file's syntax tree, empty if it has none."""
        if path not in self._trees:
            lines = self._files.lines(path) or []
            self._trees[path] = syntax_tree(lines) or ast.Module([], [])
        return self._trees[path]
