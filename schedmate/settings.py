"""One frozen `Settings` object, and where each of its values came from.

Order of precedence: flags, `SCHEDMATE_*` environment variables, the file that the user names
(`schedmate --config FILE`, or SCHEDMATE_CONFIG), the user file (`config.toml` in
`$XDG_CONFIG_HOME/schedmate`), defaults. No file is read because of where schedmate is run: the
current directory may be a job's repository, and what a settings file names is obeyed (servers that
code is sent to, a module that is imported, where the history is).
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schedmate.base.errors import SettingsError
from schedmate.base.files import Place, is_remote, place_of, with_home
from schedmate.base.inputs import fault_meaning
from schedmate.base.reading import MOST_SETTINGS, open_binary

UNREAD_FILE = "schedmate.toml"
"""The file that earlier versions read from the current directory; users are told how to name it."""
ENV_PREFIX = "SCHEDMATE_"
NEAR = 0.8
"""Similarity from which an unknown variable counts as a misspelling of a known one."""
FILE_VARIABLE = "SCHEDMATE_CONFIG"
SITE_VARIABLE = "SCHEDMATE_SITE"
SECRETS = frozenset({"SCHEDMATE_EMBEDDER_API_KEY", "SCHEDMATE_LLM_API_KEY"})
"""Variables read where they are used: a secret is not a setting, so that none is ever printed."""
NO_SETTINGS = frozenset(
    f"{ENV_PREFIX}{name}"
    for name in (
        *("SITE", "RECOVERY"),  # where the administrator's files are, and `schedmate recover`'s
        *("JOB", "JOB_MARK", "RUN", "GPUS", "NODES", "NNODES", "NODE_RANK"),  # given to Ray's jobs
    )
)
"""Variables that mean something and are not settings."""


ADDRESSES = ("llm_base_url", "embedder_base_url", "prometheus")
"""Settings that may hold a password, as in https://USER:PASSWORD@HOST/v1: none is ever printed."""


def config_dir() -> Path:
    """The directory of the user file."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "schedmate"


def data_dir() -> Path:
    """The directory that holds the history unless a setting says otherwise."""
    return _xdg("XDG_DATA_HOME", ".local/share") / "schedmate"


def site_dir() -> Path:
    """The directory of the administrator's files: bounds, recovery.yaml and what stops both.

    `SCHEDMATE_SITE` moves it, for an installation without root.
    """
    return _absolute(SITE_VARIABLE) or Path("/etc/schedmate")


def _xdg(variable: str, fallback: str) -> Path:
    return _absolute(variable) or Path.home() / fallback


def _absolute(variable: str) -> Path | None:
    # A relative one is to be ignored (XDG Base Directory Specification): it means the current
    # directory, whoever's that is.
    value = os.environ.get(variable)
    return Path(value) if value and Path(value).is_absolute() else None


class Settings(BaseSettings):
    """Everything that can be set, with its default.

    Build it with `load_settings`: the class itself reads neither files nor the environment.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENV_PREFIX, allow_inf_nan=False
    )

    history: Annotated[Place, BeforeValidator(place_of)] = Field(
        default_factory=lambda: data_dir() / "history",
        description="Directory of the job history, or postgresql://USER@HOST/DATABASE",
    )
    scheduler: str | None = Field(
        default=None,
        description="The scheduler of this cluster, which `schedmate doctor` then looks for: "
        "slurm, kubernetes, ray or one of an installed package",
    )
    record_key: Path | None = Field(
        default=None,
        description="File with a secret that keys the hashes of recovery's record, set before the "
        "record is begun: who can write the record, but not read this, cannot approve a plan",
    )
    embedder: str = Field(
        default="bundled",
        description="What turns metadata into vectors: bundled, bge, openai or module.Class",
    )
    embedder_model: str | None = Field(
        default=None, description="Model name or local directory for the bge and openai embedders"
    )
    embedder_base_url: str | None = Field(
        default=None, description="Base URL of an OpenAI-compatible embeddings server"
    )
    threshold: float | None = Field(
        default=None,
        ge=-1.0,
        le=1.0,
        description="Least cosine similarity of a neighbour; unset: the embedder's own",
    )
    top_k: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Most similar workloads of which an estimate uses the past jobs, if none is of "
        "the same work; with the method mean: most past jobs",
    )
    method: Literal["experts", "weighted", "mean"] = Field(
        default="experts",
        description="What an estimate is made of: all experts, or similar jobs alone (weighted), "
        "or their mean",
    )
    widest_interval: float = Field(
        default=300.0,
        gt=1,
        description="Ratio of p90 to p10 from which on an estimate abstains as too uncertain",
    )
    budget_s: float = Field(default=10.0, gt=0, description="CPU time of one static analysis [s]")
    min_confidence: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Values of a job's metadata that are less sure are left out [0 to 1]; 0.75 "
        "leaves out those that are marked as unsure",
    )
    memory_mb: int = Field(
        default=2048,
        ge=256,
        le=1 << 20,
        description="Most memory of a process that reads a repository or a log [MiB]",
    )
    deadline_s: float = Field(
        default=2.0,
        gt=0,
        description="Time after which the submit hook gives up and returns None [s]",
    )

    mode: Literal["static", "hybrid", "opening", "agent"] | None = Field(
        default=None,
        description="How metadata is read: static (no model), hybrid (a model is asked for what "
        "static analysis could not tell), opening (the same without tools, for small and slow "
        "models), agent (a model reads alone, as in the paper); "
        "unset: hybrid when a model is set, else static",
    )
    llm_base_url: str | None = Field(
        default=None, description="Base URL of an OpenAI-compatible server, ending in /v1"
    )
    llm_model: str | None = Field(
        default=None,
        description="Model name there, or scripted:FILE; unset: the first one it serves",
    )
    llm_timeout_s: float = Field(default=60.0, gt=0, description="Time limit of one call [s]")
    llm_deadline_s: float = Field(
        default=180.0, gt=0, description="Time limit of all calls for one job [s]"
    )
    llm_max_tokens: int = Field(default=2048, ge=16, description="Most tokens of one reply")
    llm_reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = Field(
        default=None, description="How much a reasoning model thinks, where the server can be told"
    )
    llm_reasoning_tokens: int = Field(
        default=0, ge=0, description="Room in one reply for a model that thinks first [tokens]"
    )
    llm_context_tokens: int = Field(
        default=32_768, ge=1024, description="Context length of the model [tokens]"
    )
    llm_call_tokens: int | None = Field(
        default=None, ge=1, description="Most tokens of one call, prompt and reply"
    )
    llm_job_tokens: int | None = Field(
        default=400_000, ge=1, description="Most tokens of all calls for one job"
    )
    llm_day_tokens: int | None = Field(default=None, ge=1, description="Most tokens in 24 hours")
    llm_call_cost: float | None = Field(default=None, ge=0, description="Most cost of one call")
    llm_job_cost: float | None = Field(default=None, ge=0, description="Most cost of one job")
    llm_day_cost: float | None = Field(default=None, ge=0, description="Most cost in 24 hours")
    llm_price_input: float = Field(
        default=0.0, ge=0, description="Price of a million prompt tokens"
    )
    llm_price_output: float = Field(
        default=0.0, ge=0, description="Price of a million reply tokens"
    )
    llm_cache: bool = Field(default=True, description="Reuse replies to requests made before")
    agent_ask_below: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="The model is asked for mandatory fields and the batch size below this "
        "confidence",
    )
    agent_ask_names: bool = Field(
        default=True, description="Always ask for the model's and the datasets' names"
    )
    agent_model_calls: int = Field(
        default=12,
        ge=1,
        le=100,
        description="Most replies of the model in one reading of a repository",
    )
    agent_tool_calls: int = Field(
        default=30, ge=0, le=300, description="Most file and directory reads in one reading"
    )
    trajectories: Path = Field(
        default_factory=lambda: data_dir() / "trajectories",
        description="Directory of the records of what the model was shown and said",
    )
    prometheus: str | None = Field(
        default=None,
        description="Address of a Prometheus server that measures what jobs use: GPUs by DCGM, "
        "memory and CPUs by control groups",
    )
    rules_folder: Path | None = Field(
        default=None,
        description="Directory of failure rules of this site, which count beside the bundled ones",
    )

    @field_validator("history", "trajectories", "rules_folder", mode="after")
    @classmethod
    def _expand_home(cls, value: Place | None) -> Place | None:
        return with_home(value) if isinstance(value, Path) else value

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


def load_settings(*, config: Path | None = None, **flags: Any) -> Settings:
    """The settings for one run; see `explain_settings`."""
    return explain_settings(config=config, **flags)[0]


def explain_settings(
    *, config: Path | None = None, **flags: Any
) -> tuple[Settings, dict[str, str]]:
    """The settings for one run, and where each value came from.

    `flags` that are None were not given. `config` is a settings file that replaces the one in
    SCHEDMATE_CONFIG. Raises `SettingsError` if a source cannot be read, has an unknown key or an
    invalid value.
    """
    for name in unknown_variables():
        _tell_unknown(name)
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in _layers(config or named_file(), flags):
        unknown = sorted(set(values) - set(Settings.model_fields))
        if unknown:
            raise SettingsError(_unknown_key(unknown[0], origin))
        for name, value in values.items():
            if name not in merged:
                merged[name] = value
                origins[name] = _named(origin, name)
    settings = _fitting(merged, origins)
    return settings, {name: origins.get(name, "default") for name in Settings.model_fields}


def settings_of_flags(**flags: Any) -> Settings:
    """The settings that these flags alone define; None means not given.

    Raises `SettingsError` for an invalid value.
    """
    flags_set = {name: value for name, value in flags.items() if value is not None}
    return _fitting(flags_set, {name: _named("flag", name) for name in flags_set})


def _fitting(values: dict[str, Any], origins: dict[str, str]) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingsError(
            f"setting {name!r} from {origins[name]}: {fault_meaning(first)}."
        ) from None


def named_file() -> Path | None:
    """The settings file that SCHEDMATE_CONFIG names, if it names one."""
    value = os.environ.get(FILE_VARIABLE)
    try:
        return with_home(Path(value)) if value else None
    except ValueError as error:
        raise SettingsError(f"{FILE_VARIABLE}: {error}.") from None


def unknown_variables() -> list[str]:
    """`SCHEDMATE_*` environment variables that are not settings."""
    variables = _variables()
    return sorted(
        name for name in os.environ if name.startswith(ENV_PREFIX) and name not in variables
    )


def nearest_variable(name: str) -> str | None:
    """The variable that an unknown one probably means."""
    return next(iter(difflib.get_close_matches(name, _variables(), n=1, cutoff=NEAR)), None)


def _variables() -> set[str]:
    settings = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields}
    return settings | {*SECRETS, *NO_SETTINGS, FILE_VARIABLE}


@cache
def _tell_unknown(name: str) -> None:
    """Warn, once per name, that an environment variable is not a setting."""
    near = nearest_variable(name)
    hint = f"did you mean {near}?" if near else "`schedmate config show` lists them all."
    logging.getLogger("schedmate").warning(
        "%s in the environment names no setting and does nothing; %s", name, hint
    )


def _layers(named: Path | None, flags: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "flag", {name: value for name, value in flags.items() if value is not None}
    yield "environment", EnvSettingsSource(Settings)()
    user = config_dir() / "config.toml"
    if named is not None:
        yield str(named), _read(named)
    if user.is_file():
        yield str(user), _read(user)
    unread = Path(UNREAD_FILE)
    if unread.is_file() and not any(_same(unread, one) for one in (named, user)):
        _tell_unread(unread.absolute())


def _same(path: Path, other: Path | None) -> bool:
    return other is not None and other.exists() and path.samefile(other)


@cache
def _tell_unread(path: Path) -> None:
    """Say once that a file is not read, since it may have been left there to be read."""
    logging.getLogger("schedmate").warning(
        "%s is not read, because it may belong to a job's repository; if it is yours, name it: "
        "`schedmate --config %s ...`, or %s=%s in the environment.",
        *(path, path, FILE_VARIABLE, path),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        # pydantic takes a missing file for an empty one, and waits for a pipe
        with open_binary(path, most=MOST_SETTINGS):
            values = TomlConfigSettingsSource(Settings, toml_file=path)()
    except OSError as error:
        raise SettingsError(
            f"cannot read the settings file {path}: {error.strerror}; correct the path, or leave "
            "it out."
        ) from None
    except RecursionError:
        raise SettingsError(
            f"cannot read the settings file {path}: it is nested too deeply."
        ) from None
    except ValueError as error:
        raise SettingsError(
            f"cannot read the settings file {path}: {error}; correct it: lines such as top_k = 3."
        ) from None
    for name in ("history", "trajectories", "rules_folder"):
        if isinstance(values.get(name), str) and not is_remote(values[name]):
            # A relative path in a file means relative to that file.
            try:
                values[name] = path.parent / with_home(Path(values[name]))
            except ValueError as error:
                raise SettingsError(f"{path}: {name}: {error}.") from None
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
