"""The tools as LangChain tools. Names, descriptions and schemas never vary: they are part of
the prompt's prefix, which servers cache by its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from schedmate.tools.repo_files import RepoFiles

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_TREE = "List the files of the repository. Directories end in /. Links are not followed."
_READ = "Read numbered lines of one text file of the repository."
_SEARCH = "Find lines of the repository that match a regular expression (RE2, any case)."


# Without a bound, a server that writes by grammar may never end a string.


class _TreeArguments(BaseModel):
    path: str = Field(".", max_length=400, description="directory, relative to the repository root")
    depth: int = Field(3, description="levels to descend")


class _ReadArguments(BaseModel):
    path: str = Field(max_length=400, description="file, relative to the repository root")
    start_line: int = Field(1, description="first line, counted from 1")
    max_lines: int = Field(400, description="number of lines")


class _SearchArguments(BaseModel):
    pattern: str = Field(max_length=400, description="regular expression, matched within a line")
    path: str = Field(".", max_length=400, description="directory or file to search")


def as_langchain(files: RepoFiles) -> list[BaseTool]:
    """The tools over `files`; arguments that do not fit give an `error:` text."""
    from langchain_core.tools import StructuredTool

    return [
        StructuredTool.from_function(
            function,
            name=name,
            description=description,
            args_schema=schema,
            handle_validation_error=_wrong_arguments,
        )
        for function, name, description, schema in (
            (files.file_tree, "file_tree", _TREE, _TreeArguments),
            (files.file_read, "file_read", _READ, _ReadArguments),
            (files.file_search, "file_search", _SEARCH, _SearchArguments),
        )
    ]


def _wrong_arguments(error: object) -> str:
    if not isinstance(error, ValidationError):
        return "error: the arguments do not fit the tool's schema."
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"error: argument {where}: {first['msg']}."
