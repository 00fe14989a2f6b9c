"""Writes the `Diagnosis` of a verdict: cause, location, quoted lines, doubts and the last
checkpoint.

If there are reasons to doubt a verdict of the rules, a language model may be asked. The checkpoint
to restart from is the last one that the log shows to be written completely.

A failure without a rule takes the name of the most similar labelled example, by embedding. The
examples of the rules are the labels. At a similarity of `NEAREST_THRESHOLD`, with a rule's own
examples left out, the most similar other example had the right type and name four times in five
(failure_nearest in benchmarks/results/failure.json); below it a failure stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from schedmate.base.inputs import host_name
from schedmate.jobs import Checkpoint, Diagnosis, ErrorType, EvidenceLine, FaultyComponent
from schedmate.logparse.failure.examine import (
    FEWEST_RANKS,
    Examined,
    describe_outliers,
    end_of,
    last_line,
    last_step,
)
from schedmate.logparse.failure.locate import (
    TOGETHER_LINES,
    WRAPPERS,
    RankActivity,
    Verdict,
    first_report,
    is_before,
    role_of,
)
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.rules import (
    Rule,
    RuleSet,
    Subsystem,
    is_mild,
    load_rules,
    speaks_of_trouble,
)
from schedmate.logparse.failure.scan import Event, FileScan, first_line_saying
from schedmate.logparse.reading import Line, LogFile
from schedmate.logparse.reading.lines import dated
from schedmate.logparse.signs import last_sign, signs
from schedmate.logparse.templates import mask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import BundledEmbedder


OTHER_EVENTS = 6
"""Limit for further events that are quoted, and for those that are listed as ruled out."""
_ONE_OF_A_LIST = re.compile(r"([\w.-]+)\[(\d+)\]")


@dataclass(frozen=True)
class Cause:
    """What failed, its type and component, as the fields of `Diagnosis` with the same names."""

    error_type: ErrorType
    reason: str
    likely: ErrorType | None = None
    error_name: str | None = None
    faulty_component: FaultyComponent | None = None
    recoverable: bool | None = None
    rule: str | None = None
    reference: str | None = None
    source: Literal["rules", "wording", "embedding"] = "rules"
    undecided: bool = False
    meanwhile: str | None = None


@dataclass(frozen=True)
class Place:
    """Where it failed, as the fields of `Diagnosis` with the same names."""

    file: str
    line: int
    rank: int | None
    node: str | None
    missing_ranks: list[int]


def describe(
    verdict: Verdict,
    examined: Examined,
    *,
    root_by_rules: Event | None,
    nodes: Sequence[str],
    warnings: Sequence[str],
) -> Diagnosis:
    """The diagnosis of a verdict on a job's log, with a plan.

    `root_by_rules` is the event that the rules decided on, before the wording of lines was
    considered; `nodes` are the job's nodes as named by the caller.
    """
    root, scans = verdict.root, examined.scans
    ruled_out = [event for scan in scans for event in scan.background if _is_failure(event)]
    shared_fields = {
        "job_nodes": list(dict.fromkeys(nodes)),
        "attempt": examined.attempt,
        "attempts": examined.attempts,
        "locator": examined.locator,
        "probes": examined.probes if examined.locator == "binary" else None,
        "ruled_out": [
            quote_event(event, "training went on after it") for event in ruled_out[:OTHER_EVENTS]
        ],
        "warnings": list(warnings),
    }
    diagnosis = (
        _without_failure(verdict, examined, shared_fields)
        if root is None
        else _of_failure(verdict, root, root_by_rules, examined, shared_fields)
    )
    plan = plan_for(diagnosis, given_as=root.given_as if root is not None else None)
    return diagnosis.model_copy(update={"plan": plan})


def _without_failure(
    verdict: Verdict, examined: Examined, shared_fields: dict[str, Any]
) -> Diagnosis:
    """The diagnosis if nothing failed: whether the log shows that the job finished."""
    scans = examined.scans
    end = end_of(scans)
    evidence = [quote_event(event, "worth a look") for event in verdict.hints[:OTHER_EVENTS]]
    if end is not None:
        reason = f"line {end.line.number} of {end.file.name} {end.why}"
        evidence.append(quote_line(end.file, end.line, end.why))
    else:
        reason = "no failure was found, but the log does not show a successful end either"
        evidence += _last_words(scans)
    finished = end is not None
    return Diagnosis(
        error_type="none",
        finished=finished,
        reason=_of_last_attempt(examined, finished=finished) or reason,
        evidence=evidence,
        doubts=doubts_of(Cause("none", reason), verdict, examined, finished=finished),
        **shared_fields,
    )


def _last_words(scans: Sequence[FileScan]) -> list[EvidenceLine]:
    """The last line of progress, and the last line of the first file."""
    step, line = last_step(scans), last_line(scans[0]) if scans else None
    quotes = []
    if step is not None and step[1] != line:
        quotes.append(quote_line(*step, "the last progress"))
    if line is not None:
        quotes.append(quote_line(scans[0].file, line, "the log ends here"))
    return quotes


def _of_last_attempt(examined: Examined, *, finished: bool | None) -> str | None:
    """The reason to give if the last of several attempts shows no failure."""
    last = max(examined.scans, key=lambda scan: scan.attempt.first_line, default=None)
    if last is None or examined.attempts < 2:
        return None
    came = "ended well" if finished else "shows neither a failure nor an end"
    return (
        f"the last of {examined.attempts} attempts {came}; it begins in line "
        f"{last.attempt.first_line} of {last.file.name}"
    )


def _of_failure(
    verdict: Verdict,
    root: Event,
    root_by_rules: Event | None,
    examined: Examined,
    shared_fields: dict[str, Any],
) -> Diagnosis:
    """The diagnosis of the event that decided: a failure, or another reason for the job's end."""
    scans = examined.scans
    logged = _logged_before(root, first_report(root, verdict.cascade), scans)
    cause, place = _cause(root, verdict), _place(root, verdict, logged)
    if verdict.doing is not None:
        cause, place = _of_missing_rank(cause, place, verdict.doing)
    place = _by_launcher(place, root, verdict)
    nodes = shared_fields["job_nodes"]
    if cause.error_type != "none" and place.node is None and len(nodes) == 1:
        place = replace(place, node=nodes[0])
    evidence = _evidence(verdict, root, logged)
    if cause.rule is None and cause.error_type == "unknown" and root_by_rules is not None:
        cause, place, evidence = _by_nearest_example(cause, place, evidence, root_by_rules)
    if cause.error_type == "none" and cause.error_name is None:
        cause = replace(cause, reason=_of_last_attempt(examined, finished=None) or cause.reason)
    if cause.error_type == "unknown" or verdict.missing:
        shared_fields["warnings"] += describe_outliers([scan.file for scan in scans])
    others = (event.time for scan in scans for event in scan.events if event.time is not None)
    return Diagnosis(
        **asdict(cause),
        **asdict(place),
        origin=root.origin,
        time=dated(root.time, others),
        evidence=evidence,
        doubts=doubts_of(cause, verdict, examined),
        checkpoint=checkpoint_before(root, scans),
        **shared_fields,
    )


def _cause(root: Event, verdict: Verdict) -> Cause:
    """The cause according to the rule of the event that decided."""
    rule = root.rule
    if rule is None or rule.role == "exit":
        return Cause("unknown", verdict.reason)
    undecided = rule.role == "symptom"
    return Cause(
        "unknown" if undecided else rule.type,
        f"{rule.why} ({_capital(verdict.reason)}.)",
        likely=rule.type if undecided else rule.likely,
        error_name=rule.name,
        faulty_component=rule.component,
        recoverable=rule.recoverable,
        rule=rule.id,
        reference=rule.source,
        source="wording" if isinstance(rule, Subsystem) else "rules",
        undecided=undecided,
    )


def _place(root: Event, verdict: Verdict, logged: Line | None) -> Place:
    """Where the event that decided is; `logged` is a line above that reports the same first.

    Rank and node are those of the event if others lack it; what all report is local to none.
    """
    line = first_report(root, verdict.cascade) if logged is None else logged.number
    same = [event for event in verdict.cascade if _is_same_failure(event, root)]
    rank = root.rank if {event.rank for event in same} <= {root.rank, None} else None
    node = _node(root.node if {event.node for event in same} <= {root.node, None} else None)
    if root.rule is not None and root.rule.role == "symptom":
        # who reports it waited for another one, and is not the culprit
        rank, node = verdict.missing[0] if len(verdict.missing) == 1 else None, None
    return Place(root.file.name, line, rank, node, list(verdict.missing))


def _is_same_failure(event: Event, root: Event) -> bool:
    """Whether an event is the same failure, as another rank or node may report it."""
    if root.rule is None or event.rule is None or root.rule.role != "cause":
        return False
    return event.rule.id == root.rule.id and mask(event.text) == mask(root.text)


def _is_alone(verdict: Verdict, scans: Sequence[FileScan]) -> bool:
    """Whether one rank of several that are known reports the failure, and no other does."""
    root = verdict.root
    if root is None or root.rank is None:
        return False
    ranks = {scan.file.rank for scan in scans} | {event.rank for event in verdict.cascade}
    others = {event.rank for event in verdict.cascade if _is_same_failure(event, root)}
    return len(ranks - {None, root.rank}) >= FEWEST_RANKS - 1 and others <= {root.rank, None}


def _of_missing_rank(cause: Cause, place: Place, doing: RankActivity) -> tuple[Cause, Place]:
    """Cause and place if waiting ranks are the symptom and another rank's activity is known."""
    activity, rank = doing.activity, doing.line.rank
    rank = doing.file.rank if rank is None else rank
    if rank is not None:
        place = replace(place, rank=rank, missing_ranks=place.missing_ranks or [rank])
    who = "another one" if place.rank is None else f"rank {place.rank}"
    cause = replace(
        cause,
        meanwhile=activity.id,
        error_type="unknown" if activity.undecided else activity.type,
        likely=activity.type if activity.undecided else None,
        faulty_component=activity.component,
        undecided=activity.undecided,
        recoverable=activity.undecided,
        reason="The ranks that report it waited while "
        f"{who} was {activity.id} (line {doing.line.number}).",
    )
    return cause, place


def _by_launcher(place: Place, root: Event, verdict: Verdict) -> Place:
    """The place, with rank and host from torchelastic's summary if nothing else names them."""
    first = verdict.elastic
    if place.rank is None and root.rank is not None and root.rule and root.rule.role == "cause":
        return place  # all ranks report it
    if first is None or place.rank not in (None, first.rank) or verdict.missing:
        return place
    return replace(place, rank=first.rank, node=place.node or _node(first.host))


def _evidence(verdict: Verdict, root: Event, logged: Line | None) -> list[EvidenceLine]:
    """The quoted lines: the first failure, its consequences, and other relevant lines."""
    at, doing = (root.file, root.known_at), verdict.doing
    followed = [event for event in verdict.cascade if (event.file, event.known_at) != at]
    return [
        *([quote_line(root.file, logged, "said first")] if logged is not None else []),
        *quote_report(root),
        *([quote_line(doing.file, doing.line, "what the others waited for")] if doing else []),
        *(quote_event(event, "followed") for event in followed[:OTHER_EVENTS]),
        *(quote_event(event, "worth a look") for event in verdict.hints[:OTHER_EVENTS]),
    ]


def _logged_before(root: Event, number: int, scans: Sequence[FileScan]) -> Line | None:
    """The line shortly above an exception in which a library logged the same error."""
    if not root.traceback:
        return None
    scan = next((scan for scan in scans if scan.file is root.file), None)
    if scan is None:
        return None
    first = max(
        root.file.line_number(scan.horizon), number - TOGETHER_LINES, scan.attempt.first_line
    )
    return first_line_saying(root.file, first, number, root.text)


def _by_nearest_example(
    cause: Cause, place: Place, evidence: list[EvidenceLine], root: Event
) -> tuple[Cause, Place, list[EvidenceLine]]:
    """A failure without a rule, named after the most similar labelled example."""
    nearest = nearest_example(root)
    if nearest is None:
        return cause, place, evidence
    rule = nearest.rule
    cause = replace(
        cause,
        error_type=rule.type,
        error_name=rule.name,
        faulty_component=rule.component,
        recoverable=rule.recoverable,
        rule=rule.id,
        reference=rule.source,
        source="embedding",
        reason=f"{rule.why} (No rule knows the line; it resembles an example of {rule.id}, "
        f"similarity {nearest.similarity:.2f}.)",
    )
    return (
        cause,
        replace(place, line=min(nearest.line.number, root.number)),
        [
            quote_line(root.file, nearest.line, "decided"),
            *(quoted.model_copy(update={"note": "followed"}) for quoted in evidence),
        ],
    )


def _node(text: str | None) -> str | None:
    """The name of a single machine; Slurm writes one of a range as `gpu[07]`."""
    match = _ONE_OF_A_LIST.fullmatch(text or "")
    return host_name(match[1] + match[2] if match else text)


def _is_failure(event: Event) -> bool:
    return event.rule is None or event.rule.role in ("cause", "symptom")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# The lines of a log that a diagnosis quotes.


QUOTED_LINES = 12
"""Limit for the quoted lines of the first failure."""


def quote_report(event: Event) -> list[EvidenceLine]:
    """Quotes of an event: its first lines, its last ones and the one that the rule matches."""
    lines = [line for line in event.lines if line.text.strip()]
    matched = [line for line in lines if line.number == event.known_at]
    picked = lines
    if len(lines) > QUOTED_LINES:
        picked = [*lines[:2], *lines[2 - QUOTED_LINES :]]
    if matched and matched[0] not in picked:
        picked = [picked[0], matched[0], *picked[1:]]
    return [
        EvidenceLine(
            file=event.file.name,
            line=line.number,
            text=_shown_text(event, line),
            note="decided" if line.number == event.known_at else None,
            origin=event.origin,
        )
        for line in picked
    ]


def _shown_text(event: Event, line: Line) -> str:
    """A line, or the part of a very long one that the rule matches."""
    text = line.text[:500]
    return event.text[:500] if line.number == event.known_at and event.text not in text else text


def quote_event(event: Event, note: str) -> EvidenceLine:
    """The line of an event that its rule matches."""
    return EvidenceLine(
        file=event.file.name,
        line=event.known_at,
        text=event.text[:500],
        note=note,
        origin=event.origin,
    )


def quote_line(file: LogFile, line: Line, note: str) -> EvidenceLine:
    """A line of a job's log, with the reason why it is quoted."""
    return EvidenceLine(file=file.name, line=line.number, text=line.text[:500], note=note)


# Reasons to doubt a verdict of the rules; if there are any, a language model may be asked.


UNKNOWN_FAILURE = "nothing that the rules know says what failed"
GENERAL_RULE = "the rule knows what to call the failure and only guesses whose fault it is"
ONLY_WORDING = "no rule knows the line, only its wording or a likeness says so"
OPEN_SIDE = "it is known what failed, and the log does not show whose fault that is"
ONLY_SYMPTOM = "only what others noticed of the failure is known"
FAINT_LINE = "the line calls itself less than an error"
OPEN_COMPONENT = "the log does not say which component failed"
OPEN_END = "no rule knows a failure, and the log ends in lines that speak of one"
BEFORE_TRAINING = (
    "GPU memory ran out before training began, and the log does not say how much was asked for: "
    "the card may have been in use, or faulty"
)
ONE_RANK = "one rank of many reports it, as a fault of its GPU would look as well"
KERNEL_FAULTS = frozenset({"cuda-illegal-access", "cuda-launch-failure", "cuda-misaligned"})
"""Rules for kernels that went out of bounds."""
EARLIER_ATTEMPT = "an earlier attempt decided, since the ones after it show nothing"
CANCELLED_EARLY = (
    "the last attempt was cancelled before it trained, and the log does not say why it was started "
    "again"
)
UNPROVED = frozenset(
    {
        UNKNOWN_FAILURE,
        GENERAL_RULE,
        ONLY_WORDING,
        ONLY_SYMPTOM,
        OPEN_SIDE,
        FAINT_LINE,
        OPEN_END,
        BEFORE_TRAINING,
    }
)
"""Doubts with which the type of a verdict is no more than a guess. Where there are only others
(ranks or lines that contradict each other), a rule has proved the verdict by a line."""

_CANCEL_RULES = frozenset({"slurm-cancelled"})
_MEMORY_RULES = frozenset({"cuda-oom"})
_ASKED_SIZE = re.compile(r"(?i:tried to allocate|allocat\w{0,9} [\d.]+ ?[kmgt]i?b)")
LAST_LINES = 60
"""Number of last lines that are searched for a failure without a rule."""


class Classified(Protocol):
    """The classification of a failure by rules or by a model, as far as doubts depend on it."""

    @property
    def error_type(self) -> ErrorType: ...
    @property
    def faulty_component(self) -> FaultyComponent | None: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def source(self) -> str: ...
    @property
    def undecided(self) -> bool: ...


def doubts_of(
    cause: Classified, verdict: Verdict, examined: Examined, *, finished: bool | None = None
) -> list[str]:
    """The reasons to doubt a verdict, the most serious first; none if rules have settled it.

    `finished` is whether a log without a failure shows that the job finished. What a node's own log
    or torchelastic's error file says is not in doubt.
    """
    root, scans = verdict.root, examined.scans
    if root is None:
        open_end = finished is False and _ends_in_trouble(scans)
        return [OPEN_END] if open_end else []
    if root.origin != "job_log":
        return []
    trained = any(map(_trained, scans))
    if cause.error_type == "none":
        early = cause.rule in _CANCEL_RULES and examined.attempts > 1 and not trained
        return [CANCELLED_EARLY] if early else []
    doubts = []
    rule = load_rules().by_id.get(cause.rule or "")
    if root.rule is not None and root.rule.id == cause.rule:
        rule = root.rule  # its type may be by the frames
    if cause.source in ("wording", "embedding"):
        doubts.append(ONLY_WORDING)
    elif cause.undecided or (rule is not None and rule.role == "symptom"):
        doubts.append(ONLY_SYMPTOM)
    elif cause.error_type == "unknown":
        doubts.append(UNKNOWN_FAILURE if cause.rule is None else OPEN_SIDE)
    elif rule is not None and rule.general:
        doubts.append(GENERAL_RULE)
    if root.faint:
        doubts.append(FAINT_LINE)
    if cause.rule in KERNEL_FAULTS and _is_alone(verdict, scans):
        doubts.append(ONE_RANK)
    if cause.rule in _MEMORY_RULES and not trained and not _ASKED_SIZE.search(root.text):
        doubts.append(BEFORE_TRAINING)
    if examined.attempt < examined.attempts:
        doubts.append(EARLIER_ATTEMPT)
    doubts += _contradictions(root, verdict.cascade)
    if cause.error_type == "infrastructure" and cause.faulty_component is None:
        doubts.append(OPEN_COMPONENT)
    return doubts


def _trained(scan: FileScan) -> bool:
    """Whether the attempt made a step beyond the first count of a progress bar (0 of all)."""
    return scan.step is not None and re.match(r"0(?![.\d])", scan.step.groups.get("at", "")) is None


def _contradictions(root: Event, others: Sequence[Event]) -> list[str]:
    """Failures of another type, on another rank or before the event that decided."""
    contradictions = []
    for event in others:
        rule, root_rule = event.rule, root.rule
        if rule is None or root_rule is None or role_of(event) != "cause" or event.faint:
            continue
        if rule.type == root_rule.type or WRAPPERS in (rule.name, root_rule.name) or event.bare:
            continue
        elsewhere = event.rank != root.rank or event.file is not root.file
        if elsewhere or is_before(event, root):
            contradictions.append(
                f"{_rank_in_words(event)} reports {rule.name} ({rule.type}) in line "
                f"{event.number}, {_rank_in_words(root)} {root_rule.name} ({root_rule.type}) "
                f"in line {root.number}"
            )
    return contradictions[:3]


def _rank_in_words(event: Event) -> str:
    return "one process" if event.rank is None else f"rank {event.rank}"


def _ends_in_trouble(scans: Sequence[FileScan]) -> bool:
    """Whether one of the last lines, after the last progress, reports a failure."""
    rules = load_rules()
    for scan in scans:
        last = scan.attempt.last_line
        step = scan.file.line_number(scan.step.offset) if scan.step is not None else 0
        for line in scan.file.lines(
            max(scan.attempt.first_line, step + 1, last - LAST_LINES), last
        ):
            if speaks_of_trouble(line.text) and not is_mild(line.text):
                rule = rules.line(line.text)
                if rule is None or rule.role not in ("benign", "hint"):
                    return True
    return False


# The checkpoint to restart from: the last one that the log shows to be written completely.


SAVED_WITHIN = 2000
"""Lines after the beginning of a save in which its end is looked for."""
# a line that begins a save; what is worded as done is done
_SAVE_BEGUN = re.compile(r"(?i:\b(?:saving|writing|dumping|dump)\b)")
_SAVE_DONE = re.compile(
    r"(?i:\b(?:saved|wrote|written|done|finished|complete[ds]?|took|succe\w+)\b)"
)
_OF_A_SAVE = re.compile(r"(?i:sav(?:e|ing)|checkpoint|ckpt|weights|state|model|wr(?:ote|itten))")
_NO_SAVE = re.compile(r"(?i:\b(?:config|tokenizer|vocab|special tokens|to be saved|will be)\w*)")


def checkpoint_before(root: Event, scans: Iterable[FileScan]) -> Checkpoint | None:
    """The last checkpoint in the file of the failure, else in any other."""
    ordered = sorted(scans, key=lambda scan: scan.file is not root.file)
    for scan in ordered:
        end = scan.attempt.end
        if scan.file is root.file:
            end = min(end, scan.file.line_offset(root.number))
        checkpoint = _last_checkpoint(scan, end)
        if checkpoint is not None:
            return checkpoint
    return None


def _last_checkpoint(scan: FileScan, end: int) -> Checkpoint | None:
    """The last complete checkpoint that a file reports before byte `end`."""
    file, later = scan.file, end
    for sign in signs("checkpoint").backwards(file, 0, end):
        number = file.line_number(sign.offset)
        line = next(iter(file.lines(number, number)), None)
        if line is not None and _SAVE_BEGUN.search(line.text) and not _SAVE_DONE.search(line.text):
            if sign.offset < scan.attempt.offset:  # the steps of the next attempt prove nothing
                later = min(later, scan.attempt.offset)
            if not _save_ended(file, number, later):
                later = min(later, sign.offset)
                continue
        step = sign.groups.get("step", "")
        return Checkpoint(
            path=sign.groups.get("path") or None,
            step=int(step) if step.isdigit() and len(step) < 12 else None,
            file=file.name,
            line=number,
        )
    return None


def _save_ended(file: LogFile, number: int, end: int) -> bool:
    """Whether a step, or a line that says so, shows before byte `end` that a save ended."""
    start = file.line_offset(number + 1)
    if start >= end:
        return False
    if last_sign("progress", file, start, end) is not None:
        return True
    after = islice(file.lines(number + 1, file.line_number(end - 1)), SAVED_WITHIN)
    checkpoint = signs("checkpoint")
    return any(
        _SAVE_DONE.search(line.text)
        and _OF_A_SAVE.search(line.text)
        and not _NO_SAVE.search(line.text)
        and not checkpoint.denies(line.text.encode("utf-8", "replace"))
        for line in after
    )


# A failure without a rule takes the name of the most similar labelled example, by embedding.


NEAREST_THRESHOLD = 0.8
NEAREST_AROUND = (40, 10)
"""Lines before and after the located one that are compared."""
FEWEST_WORDS = 4
"""Minimum number of words in a line to compare, not counting masked numbers and paths."""
_WORD = re.compile(r"<\w+>|([A-Za-z]{2,})")


class NearestExample(NamedTuple):
    """The rule whose example is most similar to `line`, and the similarity (cosine)."""

    rule: Rule
    line: Line
    similarity: float


def nearest_example(event: Event) -> NearestExample | None:
    """The labelled example most similar to the lines around an event, if any is similar enough."""
    first, last = max(1, event.number - NEAREST_AROUND[0]), event.number + NEAREST_AROUND[1]
    lines = [
        line
        for line in event.file.lines(first, last)
        if _has_words(line.text)
        and signs("progress").sign(line.text.encode("utf-8", "replace")) is None
        and load_rules().line(line.text) is None
    ]
    if not lines:
        return None
    rules, example_vectors = _example_vectors(load_rules())
    similar = word_vectors([mask(line.text) for line in lines]) @ example_vectors.T
    row, column = divmod(int(similar.argmax()), similar.shape[1])
    similarity = float(similar[row, column])
    return (
        NearestExample(rules[column], lines[row], similarity)
        if similarity >= NEAREST_THRESHOLD
        else None
    )


def _has_words(text: str) -> bool:
    return sum(bool(word[1]) for word in _WORD.finditer(mask(text))) >= FEWEST_WORDS


def labelled_examples(rules: RuleSet) -> list[tuple[str, Rule]]:
    """The template of each example of a rule for causes, with its rule."""
    return [
        (mask(example), rule)
        for rule in rules.rules
        if rule.role == "cause"
        for example in rule.examples
    ]


def word_vectors(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors of the meaning of words, without the spelling features of the embedder."""
    import numpy as np

    from schedmate.retrieval.embedders import WORDS

    words = _embedder().embed(texts)[:, :WORDS]
    lengths = np.linalg.norm(words, axis=1, keepdims=True)
    return np.asarray(words / np.maximum(lengths, 1e-9), dtype=np.float32)


@cache
def _embedder() -> BundledEmbedder:
    from schedmate.retrieval.embedders import BundledEmbedder

    return BundledEmbedder()


@cache
def _example_vectors(rules: RuleSet) -> tuple[list[Rule], NDArray[np.float32]]:
    pairs = labelled_examples(rules)
    return [rule for _, rule in pairs], word_vectors([text for text, _ in pairs])
