"""One frozen `Settings` object, and where each of its values came from.

Order of precedence: flags, `SCHEDMATE_*` environment variables, the project file
(`schedmate.toml` in the current directory), the user file (`config.toml` in
`$XDG_CONFIG_HOME/schedmate`), defaults. A repository under analysis is never a source: a
`schedmate.toml` inside it is ignored even when schedmate is run from there.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schedmate.errors import SettingsError

PROJECT_FILE = "schedmate.toml"
ENV_PREFIX = "SCHEDMATE_"
SECRETS = frozenset({"SCHEDMATE_EMBEDDER_API_KEY"})
"""Variables read where they are used: a secret is no setting, so that none is ever printed."""


def config_dir() -> Path:
    """The directory of the user file."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "schedmate"


def data_dir() -> Path:
    """The directory that holds the history unless a setting says otherwise."""
    return _xdg("XDG_DATA_HOME", ".local/share") / "schedmate"


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable)
    return Path(value) if value else Path.home() / fallback


class Settings(BaseSettings):
    """Everything that can be set, with its default.

    Build it with `load_settings`: the class itself reads neither files nor the environment.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=ENV_PREFIX)

    history: Path = Field(
        default_factory=lambda: data_dir() / "history",
        description="Directory of the job history",
    )
    embedder: str = Field(
        "bundled",
        description="What turns metadata into vectors: bundled, bge, openai or module.Class",
    )
    embedder_model: str | None = Field(
        None, description="Model name or local directory for the bge and openai embedders"
    )
    embedder_base_url: str | None = Field(
        None, description="Base URL of an OpenAI-compatible embeddings server"
    )
    threshold: float | None = Field(
        None,
        ge=-1.0,
        le=1.0,
        description="Least cosine similarity of a neighbour; unset: the embedder's own",
    )
    top_k: int = Field(3, ge=1, le=1000, description="Most neighbours an estimate uses")
    method: Literal["weighted", "mean"] = Field(
        "weighted", description="How neighbours become an estimate"
    )
    budget_s: float = Field(10.0, gt=0, description="Time budget of one static analysis [s]")
    deadline_s: float = Field(
        2.0, gt=0, description="Time after which the submit hook gives up and returns None [s]"
    )

    @field_validator("history", mode="after")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        return value.expanduser()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what `load_settings` has merged, so that every origin is known."""
        return (init_settings,)


def load_settings(*, repo: Path | None = None, **flags: Any) -> Settings:
    """The settings for one run; see `explain_settings`."""
    return explain_settings(repo=repo, **flags)[0]


def explain_settings(*, repo: Path | None = None, **flags: Any) -> tuple[Settings, dict[str, str]]:
    """The settings for one run, and where each value came from.

    `flags` that are None were not given. `repo` is the repository to be analysed: settings files
    inside it are not read. Raises `SettingsError` when a source cannot be read, has an unknown
    key or a value that does not fit.
    """
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in _layers(repo, flags):
        unknown = sorted(set(values) - set(Settings.model_fields))
        if unknown:
            raise SettingsError(_unknown_key(unknown[0], origin))
        for name, value in values.items():
            if name not in merged:
                merged[name] = value
                origins[name] = _named(origin, name)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingsError(
            f"setting {name!r} from {origins[name]} is {merged[name]!r}: {first['msg']}"
        ) from None
    return settings, {name: origins.get(name, "default") for name in Settings.model_fields}


def project_file() -> Path | None:
    """The project file of the current directory, if there is one."""
    path = Path.cwd() / PROJECT_FILE
    return path if path.is_file() else None


def is_inside(path: Path, repo: Path) -> bool:
    """Whether a file lies in a repository, by its own path or by where a link leads."""
    root = repo.resolve()
    return path.resolve().is_relative_to(root) or path.parent.resolve().is_relative_to(root)


def unknown_variables() -> list[str]:
    """`SCHEDMATE_*` environment variables that name no setting."""
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields} | SECRETS
    return sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in known)


def _layers(repo: Path | None, flags: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "flag", {name: value for name, value in flags.items() if value is not None}
    yield "environment", EnvSettingsSource(Settings)()
    project = project_file()
    if project is not None and not (repo is not None and is_inside(project, repo)):
        yield str(project), _read(project)
    user = config_dir() / "config.toml"
    if user.is_file():
        yield str(user), _read(user)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = TomlConfigSettingsSource(Settings, toml_file=path)()
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the settings file {path}: {error}") from None
    if isinstance(values.get("history"), str):
        # A relative path in a file means relative to that file.
        values["history"] = path.parent / Path(values["history"]).expanduser()
    return values


def _named(origin: str, name: str) -> str:
    if origin == "flag":
        return f"--{name.replace('_', '-')}"
    if origin == "environment":
        return f"{ENV_PREFIX}{name.upper()} in the environment"
    return origin


def _unknown_key(name: str, origin: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`schedmate config show` lists them all."
    return f"{origin} sets {name!r}, which is not a setting; {hint}"
