"""`recovery.yaml`: what the administrator allows recovery to do.

Without one, plans are made and nothing can be carried out. `docs/recovery.md` describes each key;
`example.yaml` is a complete file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from schedmate.base.data import load
from schedmate.base.errors import InputError, UsageError, did_you_mean
from schedmate.base.files import with_home
from schedmate.base.inputs import fault_sentence, parse_duration
from schedmate.base.reading import open_descriptor, parse_document
from schedmate.base.terminal import clean
from schedmate.cluster.actions import Diagnose
from schedmate.cluster.recovery.health import Expected, Reader
from schedmate.jobs import Diagnosis
from schedmate.settings import data_dir, site_dir

Isolate = Literal["never", "confirmed", "text"]
Restart = Literal["as diagnosed", "yes", "no"]
Step = Literal["diagnose", "isolate", "restart", "notify"]


class ConfigurationError(InputError):
    """recovery.yaml cannot be read, or is invalid."""


def _seconds(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        return parse_duration(str(value))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
"""Seconds, written like `90s`, `15m`, `24h`."""
Words = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Command = Annotated[tuple[str, ...], Field(min_length=1)]
"""A program and its arguments; no shell reads it. `{node}` and its like are filled in."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Diagnostic(_Part):
    """A test of nodes that are free of jobs."""

    command: Command
    reads: Reader
    how: Literal["each", "halving"] = "each"
    timeout: Annotated[Duration, Field(gt=0, le=86_400)] = 900.0
    at_once: int = Field(8, ge=1, le=1000, description="Nodes tested at the same time")
    gpus: int | None = Field(None, ge=1, description="GPUs that a node has")
    min_busbw_gbps: float | None = Field(None, gt=0, description="[GB/s]")
    faulty_exit_codes: frozenset[int] = frozenset({1})

    @property
    def expected(self) -> Expected:
        """Expected values of a healthy node."""
        return Expected(self.gpus, self.min_busbw_gbps, self.faulty_exit_codes)


class When(_Part):
    """The diagnoses that a rule applies to; a key that is left out matches all.

    `type` is that of the diagnosis, or where it is unknown the likely one.
    """

    type: Words | None = None
    name: Words | None = None
    component: Words | None = None
    rule: Words | None = None

    def fits(self, diagnosis: Diagnosis) -> bool:
        """Whether every given key matches the diagnosis."""
        wanted = (
            (self.type, diagnosis.leaning),
            (self.name, diagnosis.error_name),
            (self.component, diagnosis.faulty_component),
            (self.rule, diagnosis.rule),
        )
        return all(names is None or value in names for names, value in wanted)


class Rule(_Part):
    """The actions allowed after a verdict."""

    when: When = When()
    diagnose: Words = ()
    isolate: Isolate = "confirmed"
    restart: Restart = "as diagnosed"


class IsolationLimits(_Part):
    """The circuit breaker, and what must stay in service."""

    at_most: int = Field(2, ge=0, description="Nodes within `within`, or out of service by us")
    at_most_percent: float = Field(5.0, ge=0, le=100, description="Of all nodes, one at least")
    within: Annotated[Duration, Field(gt=0)] = 86_400.0
    cool_down: Duration = 600.0
    keep: int = Field(1, ge=1, description="Nodes that stay in service in every partition")
    keep_percent: float = Field(80.0, ge=0, le=100, description="Of a partition's nodes")


class RestartLimits(_Part):
    """How often jobs are restarted."""

    per_job: int = Field(3, ge=0)
    by_verdict: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    all_jobs: int = Field(50, ge=0)
    within: Annotated[Duration, Field(gt=0)] = 86_400.0
    back_off: Duration = Field(60.0, description="Before the second restart; doubled each time")
    back_off_at_most: Duration = 3600.0


class Commands(_Part):
    """The site's own commands, for the executor `local`; see docs/recovery.md for their output."""

    nodes: Command | None = None
    job: Command | None = None
    drain: Command | None = None
    resume: Command | None = None
    requeue: Command | None = None
    hold: Command | None = None
    release: Command | None = None
    notify: Command | None = None
    timeout: Annotated[Duration, Field(gt=0)] = 60.0


def _path(value: Path) -> Path:
    return with_home(value)


class Configuration(_Part):
    """All of `recovery.yaml`. By default every action needs approval."""

    version: Literal[1] = 1
    cluster: str = Field("default", min_length=1, max_length=100)
    record: Annotated[Path, AfterValidator(_path)] = Field(
        default_factory=lambda: data_dir() / "recovery.db"
    )
    kill_switch: Annotated[Path, AfterValidator(_path)] = Field(
        default_factory=lambda: site_dir() / "recovery.stop",
        description="While this is there nothing is done. Default: /etc/schedmate/recovery.stop",
    )
    automatic: frozenset[Step] = Field(
        frozenset(), description="What needs no approval: diagnose, isolate, restart, notify"
    )
    decides: Literal["anybody", "person"] = Field(
        "anybody",
        description="Who may approve and reject: `person` refuses accounts of the system and of "
        "services that nobody is known to have logged in to",
    )
    expires: Annotated[Duration, Field(gt=0)] = Field(
        86_400.0, description="How long a plan waits for approval"
    )
    diagnostics: dict[str, Diagnostic] = Field(default_factory=dict)
    rules: tuple[Rule, ...] | None = None
    isolation: IsolationLimits = IsolationLimits()
    restarts: RestartLimits = RestartLimits()
    commands: Commands | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Configuration:
        for name in self.diagnostics:
            try:
                Diagnose(diagnostic=name, nodes=("n1",))
            except ValidationError:
                raise ValueError(
                    f"diagnostics: {clean(name, 40)!r} is not a valid name; use a-z, 0-9, - and _"
                ) from None
        for number, rule in enumerate(self.rules or ()):
            for name in rule.diagnose:
                if name not in self.diagnostics:
                    raise ValueError(
                        f"rules.{number}.diagnose: there is no diagnostic {clean(name, 40)!r}"
                        f"{did_you_mean(name, self.diagnostics)}"
                    )
        return self

    def rule_for(self, diagnosis: Diagnosis) -> Rule:
        """The first rule that fits; without any of the administrator's, of `defaults.yaml`.

        Where a language model has read the failure otherwise than rules did, no more is allowed
        than what either reading allows.
        """
        rule = self._rule(diagnosis)
        if diagnosis.source != "model":
            return rule
        if diagnosis.by_rules is None:  # an older document, which has no such field
            return Rule(isolate="never", restart="no")
        ruled = self._rule(ruled_by_rules(diagnosis))
        lesser = {
            "isolate": min(rule.isolate, ruled.isolate, key=_ISOLATE.index),
            "restart": min(rule.restart, ruled.restart, key=_RESTART.index),
            "diagnose": tuple(name for name in rule.diagnose if name in ruled.diagnose),
        }
        return rule.model_copy(update=lesser)

    def _rule(self, diagnosis: Diagnosis) -> Rule:
        rules = self.rules if self.rules is not None else _defaults()
        chosen = next((rule for rule in rules if rule.when.fits(diagnosis)), None)
        if chosen is None:
            return Rule(isolate="never", restart="no")
        diagnostics = tuple(name for name in chosen.diagnose if name in self.diagnostics)
        return chosen.model_copy(update={"diagnose": diagnostics})


_ISOLATE: tuple[Isolate, ...] = ("never", "confirmed", "text")
_RESTART: tuple[Restart, ...] = ("no", "as diagnosed", "yes")


def ruled_by_rules(diagnosis: Diagnosis) -> Diagnosis:
    """A diagnosis with the verdict of the rules, where a language model replaced it."""
    ruled = diagnosis.by_rules
    if ruled is None:
        return diagnosis
    return diagnosis.model_copy(
        update={
            "error_type": ruled.error_type,
            "error_name": ruled.error_name,
            "faulty_component": ruled.faulty_component,
            "rule": ruled.rule,
        }
    )


def _defaults() -> tuple[Rule, ...]:
    return tuple(
        Rule.model_validate(one) for one in load("cluster/recovery/defaults.yaml")["rules"]
    )


def load_configuration(path: Path | None) -> Configuration:
    """The configuration of a file, or the defaults for None.

    Raises `ConfigurationError` with one sentence for a file that cannot be read or is invalid, and
    for one that others may write: they could run commands as this user.
    """
    if path is None:
        return Configuration()
    try:
        descriptor = open_descriptor(path)
        with os.fdopen(descriptor, encoding="utf-8") as stream:
            status = os.fstat(descriptor)
            text = stream.read(1 << 20)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(
            f"cannot read {path}: {reason}; name it with --recovery."
        ) from None
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise ConfigurationError(
            f"{path} may be written by others; give it to root or yourself and `chmod go-w` it."
        )
    return read_configuration(text, path)


def read_configuration(text: str, path: Path) -> Configuration:
    """The configuration in a text; relative paths in it are relative to `path`."""
    import yaml

    try:
        document = parse_document(text, path)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not YAML: {clean(error, 300)}.") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a list of keys and values is expected.")
    try:
        read = Configuration.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {fault_sentence(error, _keys())}") from None
    folder = path.absolute().parent
    return read.model_copy(
        update={"record": folder / read.record, "kill_switch": folder / read.kill_switch}
    )


def _keys() -> set[str]:
    parts = (*(Configuration, Diagnostic, Rule, When, IsolationLimits, RestartLimits, Commands),)
    return {name for part in parts for name in part.model_fields}
