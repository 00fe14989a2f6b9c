"""`MetadataExtractor`: static analysis first, then a model for what it could not determine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schedmate.agent.extraction import Extraction
from schedmate.agent.react.answer import ASKABLE, Finding
from schedmate.agent.react.asking import questions
from schedmate.agent.react.citations import Citations
from schedmate.agent.react.combine import combine, proved
from schedmate.agent.react.opening import opening
from schedmate.agent.react.reach import reached
from schedmate.errors import ModelError, SchedmateError
from schedmate.jobs import JobSpec, ModelUse, WorkloadMetadata
from schedmate.llm import LLM
from schedmate.llm.budget import CHARACTERS_PER_TOKEN
from schedmate.llm.redact import Redactor
from schedmate.settings import Settings
from schedmate.tools import RepoFiles

PURPOSE = "extract"


@dataclass(frozen=True, slots=True)
class MetadataExtractor:
    """The model's part of metadata extraction (SchedMate paper, section 3.1).

    In `hybrid` mode the model is asked for what static analysis left open or doubtful, and for the
    names that it is most often wrong about (`asking`); proved findings override. In `agent` mode it
    is asked for everything, static values are candidates, and proved findings are the answer. If
    the model fails, the static answer stands.
    """

    llm: LLM
    settings: Settings
    mode: Literal["hybrid", "agent"] = "hybrid"

    def extract(self, spec: JobSpec, static: Extraction) -> tuple[WorkloadMetadata, ModelUse]:
        """The metadata of a job, from static analysis and the model's findings.

        Never raises for what a model or its server does: see `ModelUse.outcome`.
        """
        began = time.monotonic()
        asked = self._asked(static)
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

        asked = self._asked(static)
        if not asked:
            return None
        fence = self._fence(spec)
        messages = loop.messages_of(self._question(spec, static, asked), fence)
        redactor = Redactor()
        return {
            "endpoint": self.llm.endpoint.place,
            "model": self.llm.endpoint.model,
            "max_tokens": self.llm.max_tokens,
            "messages": [
                {**one, "content": redactor.redact(str(one["content"]))}
                for one in convert_to_openai_messages(messages)
            ],
            "tools": [convert_to_openai_tool(one) for one in as_langchain(_files(spec, redactor))],
        }

    def _asked(self, static: Extraction) -> dict[str, str]:
        if self.mode == "hybrid":
            below, names = self.settings.agent_ask_below, self.settings.agent_ask_names
            return questions(static, below, names=names)
        return dict.fromkeys(ASKABLE, "the model reads alone")

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
        files = _files(spec, chat.redactor, static.entry)
        cited = (proof.file for proof in static.metadata.evidence.values() if proof.file)
        start = [static.entry, *cited] if static.entry else list(cited)
        taking_part = reached(_files(spec, run=static.entry), spec.command or "", start)
        citations = Citations(files, taking_part, spec.command or "", static.metadata, static.entry)

        def prove(findings: Iterable[Finding]) -> loop.Reading:
            return loop.Reading(*proved(findings, citations))

        material = settings.llm_context_tokens * CHARACTERS_PER_TOKEN * loop.SHARE_FOR_MATERIAL
        limits = loop.Limits(settings.agent_model_calls, settings.agent_tool_calls, int(material))
        recorder = Recorder()
        chat.watch = recorder.watch
        use.model = chat.endpoint.model
        question = self._question(spec, static, asked)
        try:
            reading = loop.read_repository(chat, files, question, self._fence(spec), limits, prove)
            base = static.metadata if self.mode == "hybrid" else _given(static.metadata)
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

    def _question(self, spec: JobSpec, static: Extraction, asked: dict[str, str]) -> Any:
        from schedmate.agent.react.loop import Question

        command = spec.command or ""
        cited = (proof.file for proof in static.metadata.evidence.values() if proof.file)
        shown = opening(_files(spec, Redactor(), static.entry), static.entry, command, cited)
        return Question(command, static.launch, asked, static.metadata, shown)

    def _fence(self, spec: JobSpec) -> Any:
        from schedmate.agent.react.loop import fence_of

        return fence_of(self.llm.store.secret(), spec.repo or "", spec.command or "")


def _files(spec: JobSpec, redactor: Redactor | None = None, run: str | None = None) -> RepoFiles:
    """The job's repository as a model is shown it; `run` is the file that its command runs."""
    assert spec.repo is not None
    # Redacted as whole files: the middle of a private key does not show what it is.
    redact = redactor.redact if redactor else None
    return RepoFiles(Path(spec.repo), redact=redact, run=(run,) if run else ())


def _given(metadata: WorkloadMetadata) -> WorkloadMetadata:
    """The values from the scheduler: a model that reads alone gets no others."""
    given = {name: proof for name, proof in metadata.evidence.items() if proof.source == "launch"}
    sections: dict[str, Any] = {name: {} for name in metadata.sections()}
    for name, proof in given.items():
        section, _, key = name.partition(".")
        sections[section][key] = proof.value
    return WorkloadMetadata.model_validate({**sections, "evidence": given})
