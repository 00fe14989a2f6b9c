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
SECRETS = frozenset({"SCHEDMATE_EMBEDDER_API_KEY", "SCHEDMATE_LLM_API_KEY"})
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
    budget_s: float = Field(10.0, gt=0, description="CPU time of one static analysis [s]")
    memory_mb: int = Field(
        2048,
        ge=256,
        le=1 << 20,
        description="Most memory of a process that reads a repository or a log [MiB]",
    )
    deadline_s: float = Field(
        2.0, gt=0, description="Time after which the submit hook gives up and returns None [s]"
    )

    mode: Literal["static", "hybrid", "agent"] | None = Field(
        None,
        description="How metadata is read: static (no model), hybrid (a model is asked for what "
        "static analysis could not tell), agent (a model reads alone, as in the paper); "
        "unset: hybrid when a model is set, else static",
    )
    llm_base_url: str | None = Field(
        None, description="Base URL of an OpenAI-compatible server, ending in /v1"
    )
    llm_model: str | None = Field(
        None, description="Model name there, or scripted:FILE; unset: the first one it serves"
    )
    llm_timeout_s: float = Field(60.0, gt=0, description="Time limit of one call [s]")
    llm_deadline_s: float = Field(
        180.0, gt=0, description="Time limit of all calls for one job [s]"
    )
    llm_max_tokens: int = Field(2048, ge=16, description="Most tokens of one reply")
    llm_context_tokens: int = Field(
        32_768, ge=1024, description="Context length of the model [tokens]"
    )
    llm_call_tokens: int | None = Field(
        None, ge=1, description="Most tokens of one call, prompt and reply"
    )
    llm_job_tokens: int | None = Field(
        400_000, ge=1, description="Most tokens of all calls for one job"
    )
    llm_day_tokens: int | None = Field(None, ge=1, description="Most tokens in 24 hours")
    llm_call_cost: float | None = Field(None, ge=0, description="Most cost of one call")
    llm_job_cost: float | None = Field(None, ge=0, description="Most cost of one job")
    llm_day_cost: float | None = Field(None, ge=0, description="Most cost in 24 hours")
    llm_price_input: float = Field(0.0, ge=0, description="Price of a million prompt tokens")
    llm_price_output: float = Field(0.0, ge=0, description="Price of a million reply tokens")
    llm_cache: bool = Field(True, description="Reuse replies to requests made before")
    agent_model_calls: int = Field(
        12, ge=1, le=100, description="Most replies of the model in one reading of a repository"
    )
    agent_tool_calls: int = Field(
        30, ge=0, le=300, description="Most file and directory reads in one reading"
    )
    trajectories: Path = Field(
        default_factory=lambda: data_dir() / "trajectories",
        description="Directory of the records of what the model was shown and said",
    )

    @field_validator("history", "trajectories", mode="after")
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
    for name in ("history", "trajectories"):
        if isinstance(values.get(name), str):
            # A relative path in a file means relative to that file.
            values[name] = path.parent / Path(values[name]).expanduser()
    return values


def _named(origin: str, name: str) -> str:
    if origin == "flag":
        return "--model" if name == "llm_model" else f"--{name.replace('_', '-')}"
    if origin == "environment":
        return f"{ENV_PREFIX}{name.upper()} in the environment"
    return origin


def _unknown_key(name: str, origin: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`schedmate config show` lists them all."
    return f"{origin} sets {name!r}, which is not a setting; {hint}"
