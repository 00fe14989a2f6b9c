"""Completes static analysis with a model: `MetadataExtractor` asks, has the findings proved, and
combines.

`fields_to_ask` decides which fields a model is asked for, each with the reason; `combine` decides
what enters the metadata. A finding enters if its citation is valid and its field was asked for. It
then overrides a static value that is doubtful; a sure one gives way only to what the launch command
states, and both lines are reported as a conflict. Without valid findings nothing changes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schedmate.agent import Extraction
from schedmate.agent.fields.candidates import EXPLICIT
from schedmate.agent.react.citations import (
    ASKABLE_FIELDS,
    OPTIONAL_FIELDS,
    SIZE_FIELDS,
    SURE_CONFIDENCE,
    Citations,
    bare_name,
)
from schedmate.agent.react.opening import opening
from schedmate.agent.react.sources import files_of_job
from schedmate.agent.units import ITERS, UNIT
from schedmate.base.data import load
from schedmate.base.errors import ModelError, SchedmateError
from schedmate.jobs import Evidence, JobSpec, ModelUse, WorkloadMetadata
from schedmate.jobs.metadata import RunnerUp
from schedmate.llm import LLM
from schedmate.llm.redact import Fence, Redactor
from schedmate.llm.store import CHARACTERS_PER_TOKEN
from schedmate.settings import Settings
from schedmate.tools import RepoFiles

if TYPE_CHECKING:
    from schedmate.agent.react.loop import Question

PURPOSE = "extract"
SHARE_OF_OPENING = 0.4
"""Share of the context that the opening may fill, beside prompts, replies and what is looked up."""


@dataclass(frozen=True, slots=True)
class MetadataExtractor:
    """The model's part of metadata extraction (SchedMate paper, section 3.1).

    In `hybrid` mode the model is asked for what static analysis left open or doubtful, and for the
    names that it is most often wrong about (`fields_to_ask`); proved findings override. In
    `opening` mode it is asked the same and answers from the first message, without tools. In
    `agent` mode it is asked for everything, static values are candidates, and proved findings are
    the answer. If the model fails, the static answer stands.
    """

    llm: LLM
    settings: Settings
    mode: Literal["hybrid", "agent", "opening"] = "hybrid"

    def extract(self, spec: JobSpec, static: Extraction) -> tuple[WorkloadMetadata, ModelUse]:
        """The metadata of a job, from static analysis and the model's findings.

        Never raises for what a model or its server does: see `ModelUse.outcome`.
        """
        began = time.monotonic()
        asked = self.asked(static)
        use = ModelUse(
            mode=self.mode,
            model=self.llm.endpoint.model,
            endpoint=self.llm.endpoint.place,
            outcome="ok" if asked else "not needed",
            asked=list(asked),
            reasons=asked,
        )
        if not asked:
            return static.metadata, use
        metadata = static.metadata
        try:
            metadata = self._read(spec, static, asked, use)
        except ModelError as error:
            use.outcome, use.reason = error.verdict, str(error)
        except Exception as error:  # noqa: BLE001 - whatever breaks here, the static answer stands
            named = isinstance(error, SchedmateError)
            use.outcome = "failed"
            use.reason = str(error) if named else f"{type(error).__name__}: {error}"
        use.seconds = round(time.monotonic() - began, 3)
        return metadata, use

    def prompt(self, spec: JobSpec, static: Extraction) -> dict[str, Any] | None:
        """The request that would start a reading, redacted as it would be sent, or None."""
        from langchain_core.messages import convert_to_openai_messages
        from langchain_core.utils.function_calling import convert_to_openai_tool

        from schedmate.agent.react import loop
        from schedmate.tools import as_langchain

        asked = self.asked(static)
        if not asked:
            return None
        fence = self._fence(spec)
        tools = self.mode != "opening"
        messages = loop.messages_of(self._question(spec, static, asked), fence, tools=tools)
        redactor = Redactor()
        return {
            "endpoint": self.llm.endpoint.place,
            "model": self.llm.endpoint.model,
            "max_tokens": self.llm.max_tokens,
            "messages": [
                {**one, "content": redactor.redact(str(one["content"]))}
                for one in convert_to_openai_messages(messages)
            ],
            "tools": [
                convert_to_openai_tool(one)
                for one in as_langchain(_repository_files(spec, redactor))
                if tools
            ],
        }

    def asked(self, static: Extraction) -> dict[str, str]:
        """The fields that the model is asked for, with the reasons."""
        if self.mode != "agent":
            below, names = self.settings.agent_ask_below, self.settings.agent_ask_names
            return fields_to_ask(static, below, names=names)
        return dict.fromkeys(ASKABLE_FIELDS, "the model reads alone")

    def _read(
        self, spec: JobSpec, static: Extraction, asked: dict[str, str], use: ModelUse
    ) -> WorkloadMetadata:
        from schedmate.agent.react import loop
        from schedmate.agent.react.trajectory import Recorder

        settings = self.settings
        chat = self.llm.chat(
            PURPOSE,
            job=spec.job_id or f"reading-{uuid.uuid4().hex[:12]}",
            deadline_s=settings.llm_deadline_s,
        )
        # The model can only cite what it was shown, and that is without secrets.
        files = _repository_files(spec, chat.redactor, static.entry)
        start = [*([static.entry] if static.entry else []), *_files_cited(static)]
        taking_part = files_of_job(
            _repository_files(spec, run=static.entry), spec.command or "", start
        )
        citations = Citations(files, taking_part, spec.command or "", static.metadata, static.entry)
        material = settings.llm_context_tokens * CHARACTERS_PER_TOKEN * loop.SHARE_FOR_MATERIAL
        limits = loop.Limits(settings.agent_model_calls, settings.agent_tool_calls, int(material))
        recorder = Recorder()
        chat.watch = recorder.watch
        use.model = chat.endpoint.model
        question = self._question(spec, static, asked)
        try:
            reading = loop.read_repository(
                chat,
                files,
                question,
                self._fence(spec),
                limits,
                citations,
                tools=self.mode != "opening",
            )
            base = _launch_values_only(static.metadata) if self.mode == "agent" else static.metadata
            combined = combine(base, reading.found, asked)
            metadata = combined.metadata
            use.conflicts, use.absent = combined.conflicts, combined.absent
            use.dropped = [str(one) for one in reading.dropped]
            use.filled = [
                name for name, proof in metadata.evidence.items() if proof.source == "model"
            ]
            if self.mode == "agent" and not use.filled:
                raise ModelError("malformed", "nothing that the model reported could be proved")
        except ModelError as error:
            use.outcome, use.reason = error.verdict, str(error)
            raise
        finally:
            use.calls = sum(call.counts for call in chat.calls)
            use.input_tokens = sum(call.input_tokens for call in chat.calls)
            use.output_tokens = sum(call.output_tokens for call in chat.calls)
            use.cached_tokens = sum(call.cached_tokens for call in chat.calls)
            if recorder.exchanges:
                saved = recorder.save(settings.trajectories, spec, use, chat.redactor.redact)
                use.trajectory = str(saved)
        return metadata

    def _question(self, spec: JobSpec, static: Extraction, asked: dict[str, str]) -> Question:
        from schedmate.agent.react.loop import Question

        command = spec.command or ""
        files = _repository_files(spec, Redactor(), static.entry)
        proofs = [static.metadata.evidence.get(name) for name in asked]
        claims = [(one.file, one.line) for one in proofs if one and one.file and one.line]
        most = int(self.settings.llm_context_tokens * CHARACTERS_PER_TOKEN * SHARE_OF_OPENING)
        shown = opening(files, static.entry, command, _files_cited(static), claims, most)
        return Question(command, static.launch, asked, static.metadata, shown)

    def _fence(self, spec: JobSpec) -> Fence:
        from schedmate.agent.react.loop import fence_of

        return fence_of(self.llm.store.secret(), spec.repo or "", spec.command or "")


def _files_cited(static: Extraction) -> list[str]:
    return [proof.file for proof in static.metadata.evidence.values() if proof.file]


def _repository_files(
    spec: JobSpec, redactor: Redactor | None = None, run: str | None = None
) -> RepoFiles:
    """The job's repository as a model is shown it; `run` is the file that its command runs."""
    assert spec.repo is not None
    # Redacted as whole files: the middle of a private key does not show what it is.
    redact = redactor.redact if redactor else None
    return RepoFiles(Path(spec.repo), redact=redact, run=(run,) if run else ())


def _launch_values_only(metadata: WorkloadMetadata) -> WorkloadMetadata:
    """The values from the scheduler: a model that reads alone gets no others."""
    from_launch = {
        name: proof for name, proof in metadata.evidence.items() if proof.source == "launch"
    }
    sections: dict[str, Any] = {name: {} for name in metadata.sections()}
    for name, proof in from_launch.items():
        section, _, key = name.partition(".")
        sections[section][key] = proof.value
    kept = {"job_kind": metadata.job_kind, "evidence": from_launch}
    return WorkloadMetadata.model_validate({**sections, **kept})


# Which fields a model is asked for, each with the reason.
#
# Asking only where static analysis is unsure would leave out confident mistakes: mostly names,
# which look right to a reader who does not know what they mean.


DOUBTFUL_BELOW: float = Settings.model_fields["agent_ask_below"].default
"""Static values with a lower confidence are asked about: one in ten or more is wrong."""
ALWAYS_ASKED = ("model_config.model_name", "dataset_config.train", "dataset_config.valid")
"""Names, whose mistakes show only to a reader who knows what they mean."""
BATCH = "training_config.batch_size"
ASKED_FIELDS = (*WorkloadMetadata.MANDATORY, BATCH)
FURTHER_FIELDS = (*(one for one in OPTIONAL_FIELDS if one != BATCH), *SIZE_FIELDS)
"""Fields that are asked for only where the static answer cannot be."""


def fields_to_ask(
    static: Extraction, below: float = DOUBTFUL_BELOW, *, names: bool = True
) -> dict[str, str]:
    """The fields to ask for, in the order of `ASKED_FIELDS`, with reasons.

    `below` is the static confidence from which on a field is not asked about; `names` is whether
    `ALWAYS_ASKED` applies.
    """
    metadata = static.metadata
    reasons: dict[str, str] = {}
    of_kind = WorkloadMetadata.MANDATORY_OF[metadata.family]
    for path in ASKED_FIELDS:
        if metadata.family != "training" and path not in of_kind:
            continue
        proof = metadata.evidence.get(path)
        if metadata.get(path) is None:
            reasons[path] = "static analysis found nothing"
        elif proof is not None and proof.confidence < below:
            reasons[path] = f"static analysis is {proof.confidence:.0%} sure"
        elif static.cut_off and proof is not None and proof.source not in EXPLICIT:
            reasons[path] = "static analysis was cut off"
        elif path in static.contradicted:
            reasons[path] = f"the command states {static.contradicted[path]}"
        elif names and path in ALWAYS_ASKED:
            reasons[path] = "always asked"
    for one, other in ((ITERS, UNIT), (UNIT, ITERS)):
        if one in reasons and other not in reasons:
            reasons[other] = "goes with the length"
    if list(reasons) == [BATCH]:
        reasons = {}  # worth a place in a question, not a question of its own
    if metadata.family == "training":
        reasons |= _impossible_values(static)
    return {name: reasons[name] for name in (*ASKED_FIELDS, *FURTHER_FIELDS) if name in reasons}


def _impossible_values(static: Extraction) -> dict[str, str]:
    """Further fields whose value is out of range, fits no other or is not what the command says."""
    metadata = static.metadata
    reasons = {
        path: f"the command states {static.contradicted[path]}"
        for path in FURTHER_FIELDS
        if path in static.contradicted
    }
    bounds: dict[str, list[float]] = load("agent/react/plausible.yaml")
    for path, (least, most) in bounds.items():
        value = metadata.get(path)
        if isinstance(value, int | float) and not least <= value <= most:
            reasons[path] = f"{value} is hardly a {path.rpartition('.')[2]}"
    width, heads = metadata.get("model_config.d_model"), metadata.get("model_config.n_head")
    if isinstance(width, int) and isinstance(heads, int) and heads > 0 and width % heads:
        reasons["model_config.d_model"] = f"{heads} heads do not divide {width}"
    return reasons


# Which of the model's findings enter the metadata.


AGREED_CONFIDENCE = 0.9
"""Confidence of a value that static analysis and a model determined independently."""
CONFLICT_CONFIDENCE = 0.5
"""Confidence of a value that another one contradicts with equal proof."""
WEAK_BELOW = 0.75
"""Static values with a lower confidence give way to the finding that there is none, and to a class
that its line neither names nor contradicts."""


@dataclass(slots=True)
class Combined:
    """The metadata, and the disagreements of static analysis and the model."""

    metadata: WorkloadMetadata
    conflicts: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Fields that a line shows to have no value."""


def combine(
    metadata: WorkloadMetadata, findings: dict[str, Evidence], asked: Iterable[str]
) -> Combined:
    """`metadata` with the proved values for the fields that were asked for."""
    sections: dict[str, dict[str, Any]] = metadata.sections()
    evidence = dict(metadata.evidence)
    combined = Combined(metadata)
    asked = set(asked)
    for name, proof in _keep_units_paired(metadata, findings, asked).items():
        before = evidence.get(name)
        after = _decide_value(name, before, proof, name in asked, combined)
        section, _, key = name.partition(".")
        sections[section][key] = None if after is None else after.value
        if after is None:
            evidence.pop(name, None)
        else:
            evidence[name] = after
    kept = {"job_kind": metadata.job_kind, "evidence": evidence}
    combined.metadata = WorkloadMetadata.model_validate({**sections, **kept})
    return combined


def _decide_value(
    name: str, before: Evidence | None, proof: Evidence, asked: bool, combined: Combined
) -> Evidence | None:
    """The static value or the model's, whichever stands; None if the field has no value."""
    if proof.value is None:
        shown = proof.note or f"{proof.where()} shows that there is none"
        combined.absent.append(f"{name}: {shown}")
        if before is None or (asked and before.confidence < WEAK_BELOW):
            return None
    if before is None or before.value is None:
        return proof if asked else None
    if proof.value is not None and same_value(before.value, proof.value):
        sure = max(before.confidence, AGREED_CONFIDENCE)
        return before.model_copy(update={"confidence": sure, "doubt": None, "runner_up": None})
    claim = f"static analysis says {before.value!r} ({before.where()})"
    bar = DOUBTFUL_BELOW if proof.confidence >= SURE_CONFIDENCE else WEAK_BELOW
    sure = before.confidence >= max(bar, proof.confidence)
    if sure or not asked or proof.value is None:
        said = "that there is none" if proof.value is None else repr(proof.value)
        combined.conflicts.append(f"{name}: {claim}, the model {said} ({proof.where()})")
        before = before.model_copy()
        before.lower(CONFLICT_CONFIDENCE, f"the model says {said}, by {proof.where()}")
        return before
    if before.confidence >= DOUBTFUL_BELOW:
        combined.conflicts.append(f"{name}: {claim}, the model {proof.value!r} ({proof.where()})")
    notes = [note for note in (proof.note, claim) if note]
    other = RunnerUp(value=before.value, where=before.where())
    return proof.model_copy(update={"note": "; ".join(notes), "runner_up": other})


def same_value(one: object, other: object) -> bool:
    """Whether two values are equal except for case, punctuation and number format."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    return bare_name(str(one)) == bare_name(str(other))


def _keep_units_paired(
    metadata: WorkloadMetadata, findings: dict[str, Evidence], asked: set[str]
) -> dict[str, Evidence]:
    """The findings that may enter: never the model's number with static analysis' unit.

    1,000 from one and `epoch` from the other would make a length that no source states.
    """
    entering = dict(findings)
    for one, other in ((ITERS, UNIT), (UNIT, ITERS)):
        changes = one in entering and entering[one].value != metadata.get(one)
        if changes and other not in entering and metadata.get(other) is not None:
            del entering[one]
    return entering
