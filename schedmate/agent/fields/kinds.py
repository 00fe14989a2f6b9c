"""What kind of job a command starts, and the fields of the kinds that are no training.

The kind follows, in this order, from a program that is known by its name (`launch/programs.yaml`),
from the search for hyper-parameters that a run reaches, from a flag or word that switches the
program's mode, from the name of what runs together with whether a training step is reached, from
other calls that are reached (a server that listens, `generate`, a writer of data), from settings
that only trainings have, from computing without gradients, and from the program's folder. The
patterns are in kinds.yaml.

A job that is no training has none of the fields of trainings: those of its kind are looked up
among its settings by the names that kinds.yaml lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from schedmate.agent.fields.candidates import EXPLICIT, Candidate, rules
from schedmate.agent.fields.settings import Setting, normal_name, settings_named
from schedmate.agent.fields.training import makes_optimizer
from schedmate.agent.fields.unread import library_program
from schedmate.agent.interp.libs.parsers import flag_origin, parse_flags
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.launch.launchers import KnownProgram, known_program
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.shell_expansion import token
from schedmate.agent.units import ITERS, UNIT
from schedmate.agent.values import Origin, Value
from schedmate.jobs.metadata import SURE, JobKind, WorkloadMetadata, family

KIND = "job_kind"
_OFF = frozenset({"false", "no", "0", "none", "off", "f", "n", ""})
_MODEL, _TASK, _TRAIN = "model_config.model_name", "model_config.task_type", "dataset_config.train"
_ONLY_TRAININGS = (ITERS, "training_config.optimizer", "training_config.lr")
_PATH_OF_MODEL = re.compile(r"/+$")
MOST = 10**12
"""Larger numbers count nothing that a job has."""


class _Told(NamedTuple):
    """A kind with where it was told, for people in `note`."""

    kind: JobKind
    origin: Origin | None
    sure: float
    note: str

    def candidate(self) -> Candidate:
        candidate = Candidate(self.kind, self.origin, 100 * self.sure, self.note, rule="kind")
        return replace(candidate, sure=self.sure)


@cache
def _patterns(table: str) -> dict[JobKind, re.Pattern[str]]:
    return {kind: re.compile(text) for kind, text in rules("kinds")[table].items()}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rules("kinds")[name])


def _sure(row: str) -> float:
    return float(rules("kinds")["sure"][row])


def find_kind(trace: Trace, plan: LaunchPlan, answers: Mapping[str, Candidate | None]) -> Candidate:
    """The kind of the job, with what told it; `unknown` where nothing does.

    Args:
        trace: what was seen of the program.
        plan: the program and its words.
        answers: the fields that were found as if it were a training.
    """
    told = _by_program(plan) or _by_evidence(trace, plan, answers)
    if told is None:
        told = _Told("unknown", None, 0.0, "nothing told the kind")
    elif told.kind == "training":
        told = _of_training(told, trace, plan)
    return told.candidate()


def program_of(plan: LaunchPlan) -> KnownProgram | None:
    """What is known of the program of a plan by its name."""
    return known_program([plan.program, *map(token, plan.argv)])


def _by_program(plan: LaunchPlan) -> _Told | None:
    """The kind of a program that is known by its name."""
    called = [plan.program, *map(token, plan.argv)]
    known = known_program(called)
    if known is None:
        known = next(
            (one for name in plan.launchers if (one := known_program([name])) is not None), None
        )
    if known is not None:
        return _Told(known.kind, _NAME, _sure("program"), f"from program {known.name}")
    if library_program(plan) is not None:
        return _Told("training", _NAME, _sure("program"), f"from program {plan.program}")
    return None


def _by_evidence(
    trace: Trace, plan: LaunchPlan, answers: Mapping[str, Candidate | None]
) -> _Told | None:
    """The kind by flags, names and calls."""
    trains = _training_reached(trace)
    if (sweep := _searched(trace, plan)) is not None:
        return sweep
    switched, named = _switched(plan), _named(plan)
    is_named_training = named is not None and family(named.kind) == "training"
    if switched is not None and not (
        family(switched.kind) != "training" and trains is not None and is_named_training
    ):
        return switched
    if is_named_training and named is not None:
        return named if trains is None else named._replace(sure=_sure("named and reached"))
    if trains is not None:
        return trains
    reached = _reached(trace)
    if reached is not None and reached.kind == "serving":
        return reached
    if named is not None and not any(map(makes_optimizer, _certain(trace))):
        return named
    if reached is not None:
        return reached
    for field in _ONLY_TRAININGS:
        if (answer := answers.get(field)) is not None:
            note = f"{field} is set, which only trainings have"
            return _Told("training", answer.origin, _sure("fields"), note)
    return _without_gradients(trace) or _in_folder(plan)


# What each kind of evidence tells.


def _certain(trace: Trace) -> Iterator[CallEvent]:
    return (event for event in trace.calls if event.certain and not event.on_import)


def _site(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _training_reached(trace: Trace) -> _Told | None:
    """A training step that the run reaches."""
    pattern = _patterns("calls")["training"]
    for event in _certain(trace):
        if pattern.search(event.path):
            return _Told("training", _site(event), _sure("reached"), f"calls {event.path}")
    if any(map(makes_optimizer, trace.calls)):
        for loop in trace.loops:
            if loop.has_backward and loop.certain:
                origin = Origin("code", loop.site.file, loop.site.line)
                return _Told("training", origin, _sure("reached"), "this loop trains")
    return _function_reached(trace, "training", _sure("call"))


def _function_reached(trace: Trace, kind: JobKind, sure: float) -> _Told | None:
    """A function of the repository whose name says what it does."""
    pattern = _patterns("functions")[kind]
    for name, nodes in trace.functions.items():
        if pattern.search(name):
            site = next(iter(nodes.values()))
            return _Told(kind, Origin("code", site.file, site.line), sure, f"calls {name}()")
    return None


def _searched(trace: Trace, plan: LaunchPlan) -> _Told | None:
    """A search over hyper-parameters: in the code, by hydra's sweeper, or by a flag."""
    pattern = _patterns("calls")["sweep"]
    for event in trace.calls:
        if event.certain and pattern.search(event.path):
            return _Told("sweep", _site(event), _sure("reached"), f"calls {event.path}")
    for word in plan.argv:
        if token(word) in ("-m", "--multirun") and "hydra" in trace.imports:
            origin = flag_origin(word)
            return _Told("sweep", origin, _sure("reached"), "hydra runs the program many times")
    return _flagged(plan, ("sweep",))


def _flagged(plan: LaunchPlan, kinds: Iterable[JobKind]) -> _Told | None:
    """The first flag that switches the program to one of `kinds`."""
    by_name = {
        normal_name(name): kind for kind in kinds for name in rules("kinds")["flags"].get(kind, ())
    }
    flags, _ = parse_flags(plan.argv)
    for name, values, flag in flags:
        kind = by_name.get(normal_name(name))
        value = token(values[0]).lower() if values else "true"
        is_switch = not values or value in ("true", "yes", "1", "t", "y") or value.isdigit()
        if kind is not None and value not in _OFF and (is_switch or len(values) != 1):
            told = f"{token(flag)} asks for it"
            return _Told(kind, flag_origin(flag), _sure("flag"), told)
    return None


def _switched(plan: LaunchPlan) -> _Told | None:
    """The mode of the program by an option, its first word, or a flag; trainings come first."""
    modes = _patterns("modes")
    options = {normal_name(name) for name in rules("kinds")["mode_options"]}
    flags, loose = parse_flags(plan.argv)
    stated = [
        (token(values[0]), values[0]) for name, values, _ in flags
        if values and normal_name(name) in options
    ]  # fmt: skip
    stated += [(token(word), word) for word in loose[:1]]
    stated += [
        (text.partition("=")[2], word) for word in loose
        if "=" in (text := token(word)) and normal_name(text.partition("=")[0]) in options
    ]  # fmt: skip
    for text, word in stated:
        for kind, pattern in modes.items():
            if pattern.search(text.lower()):
                told = f"{text} is the program's mode"
                return _Told(kind, word.origin, _sure("flag"), told)
    trained = _flagged(plan, ("training",))
    switches = [kind for kind in rules("kinds")["flags"] if kind not in ("training", "sweep")]
    return trained or _flagged(plan, switches)


def _words_of(name: str) -> str:
    """A name in lower case with `_` between its words."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"\W+", "_", apart).lower()


def _named(plan: LaunchPlan) -> _Told | None:
    """The kind by the name of what runs: its file, module or function."""
    place = plan.entry or (plan.console or "").replace(".", "/")
    path = PurePosixPath(place.removesuffix(".py") or ".")
    if re.match(r"(.*/)?tests?/", place) and path.name.startswith("test_"):
        return _Told("compile or test", _NAME, _sure("name"), f"from name {path.name}")
    names = [path.name]
    if _pattern("plain_names").search(_words_of(path.name)):
        names = [plan.function or "", path.parent.name]
    for name in names:
        for kind, pattern in _patterns("names").items():
            if name and pattern.search(_words_of(name)):
                return _Told(kind, _NAME, _sure("name"), f"from name {name}")
    return None


_NAME = Origin("derived")
"""Where a kind is from that the name of what runs tells: its note says which."""


def _reached(trace: Trace) -> _Told | None:
    """The kind by what the run calls, besides training."""
    events = list(_certain(trace))
    for kind in ("serving", "batch inference", "data processing"):
        pattern = _patterns("calls")[kind]
        event = next((event for event in events if pattern.search(event.path)), None)
        if event is None:
            if kind == "serving":
                scored = _function_reached(trace, "evaluation", _sure("call"))
                if scored is not None:
                    return scored
            continue
        if kind == "batch inference" and any(_pattern("scores").search(e.path) for e in events):
            return _Told("evaluation", _site(event), _sure("call"), "scores what it generates")
        return _Told(kind, _site(event), _sure("call"), f"calls {event.path}")
    return None


def _without_gradients(trace: Trace) -> _Told | None:
    """The kind of a run that computes without gradients and, as far as is known, never with them.

    One that computes a loss all the same scores a model.
    """
    events = list(_certain(trace))
    event = next((one for one in events if _pattern("without_gradients").search(one.path)), None)
    if event is None or any(map(makes_optimizer, trace.calls)):
        return None
    scores = any(_pattern("losses").search(one.path) for one in events)
    kind: JobKind = "evaluation" if scores else "batch inference"
    return _Told(
        kind, _site(event), _sure("without gradients"), f"calls {event.path}, and nothing trains"
    )


def _in_folder(plan: LaunchPlan) -> _Told | None:
    folder = str(PurePosixPath(plan.entry or ".").parent).lower()
    for kind, pattern in _patterns("folders").items():
        if pattern.search(folder):
            return _Told(kind, _NAME, _sure("folder"), f"from folder {folder}")
    return None


def _of_training(told: _Told, trace: Trace, plan: LaunchPlan) -> _Told:
    """A training as what it begins with: nothing, trained weights, or a language model's policy."""
    begins = _patterns("begins")
    first: tuple[JobKind, ...] = ("RL post-training", "fine-tuning", "evaluation")
    texts = [plan.program, f"{plan.cwd}/{plan.entry or ''}", *map(token, plan.argv)]
    for kind in first:
        text = next((text for text in texts if begins[kind].search(text.lower())), None)
        if text is not None and not (kind == "evaluation" and told.sure > _sure("reached")):
            return told._replace(kind=kind, note=f"{told.note}; {text} is its name")
    for kind, pattern in zip(first, ("rl", "pretrained"), strict=False):
        for event in _certain(trace):
            if _pattern(pattern).search(event.path):
                return told._replace(kind=kind, note=f"{told.note}; calls {event.path}")
    return told


# The fields of the kinds that are no training.


def fields_of(
    kind: JobKind,
    trace: Trace,
    plan: LaunchPlan,
    settings: Sequence[Setting],
    answers: Mapping[str, Candidate],
) -> tuple[dict[str, Candidate], bool]:
    """The fields that a job of this kind has, by dotted name, and whether it may be a training.

    Only trainings have fields of trainings, and jobs of no known kind that may train out of sight.

    Args:
        kind: what it is; of a training, what it has besides the fields of trainings.
        trace: what was seen of the program.
        plan: the program and its words.
        settings: the leaves of its settings.
        answers: the fields that were found as if it were a training.
    """
    is_training = family(kind) == "training"
    if kind == "unknown":
        is_training = not _trains_nowhere(trace, plan, settings)
    own = _own_fields(kind, trace, plan, settings, answers, is_training)
    return ({**answers, **own} if is_training else own), is_training


def _trains_nowhere(trace: Trace, plan: LaunchPlan, settings: Sequence[Setting]) -> bool:
    """Whether what was followed is all that the job does, and nothing in it is about training."""
    elsewhere, about = _pattern("elsewhere"), _pattern("about_training")
    return (
        bool(trace.calls)
        and trace.complete
        and plan.complete
        and not any(elsewhere.search(event.path) for event in trace.calls)
        and not any(about.search(_words_of(part)) for one in settings for part in one.path)
    )


def doubt_fields(metadata: WorkloadMetadata) -> None:
    """No field of a training is surer than it is that the job is a training.

    Args:
        metadata: of the job; the confidence of its evidence is lowered in place.
    """
    kind = metadata.evidence.get(KIND)
    sure = kind.confidence if kind is not None else _sure("folder")
    if sure < SURE:
        for field, proof in metadata.evidence.items():
            if field.startswith(("training_config.", "dataset_config.")):
                proof.lower(sure, "whether the job is a training is not sure")


def _own_fields(
    kind: JobKind,
    trace: Trace,
    plan: LaunchPlan,
    settings: Sequence[Setting],
    answers: Mapping[str, Candidate],
    is_training: bool,
) -> dict[str, Candidate]:
    """The fields besides those of trainings."""
    known = program_of(plan)
    stated = [*_pairs(known, plan), *settings, *_of_calls(trace)]
    found: dict[str, Candidate] = {}
    if kind in rules("kinds")["with_model"] and not is_training:
        words = _positional(known, plan)
        named = list(known.model) if known is not None else []
        if known is not None and known.pairs:
            names = named
        else:
            names = [*named, *rules("kinds")["settings"]["model"]]
        model = _chosen("model", stated, names) or words.get("model")
        if model is None and kind != "compile or test":
            model = answers.get(_MODEL)
        if model is not None:
            found[_MODEL] = model
            task = answers.get(_TASK)
            if task is not None:
                found[_TASK] = task
        if "tasks" in words:
            found["job_config.tasks"] = words["tasks"]
        if "data" in words:
            found["job_config.data"] = words["data"]
    for field in rules("kinds")["fields"].get(kind, ()):
        names = rules("kinds")["settings"][field]
        candidate = _chosen(field, stated, names)
        if candidate is not None:
            found.setdefault(f"job_config.{field}", candidate)
    if kind == "sweep":
        found |= _of_sweep(plan, answers, found)
    for name in ("num_gpus", "num_nodes"):
        devices = answers.get(f"training_config.{name}")
        if devices is not None and not is_training:
            found[f"job_config.{name}"] = devices
    return found


def _of_sweep(
    plan: LaunchPlan, answers: Mapping[str, Candidate | None], found: Mapping[str, Candidate]
) -> dict[str, Candidate]:
    """The data and the length of one trial, and the number of those that the command lists."""
    own = {_TRAIN: "data", ITERS: "trial_iters", UNIT: "trial_iter_type"}
    beside = {
        f"job_config.{name}": answer
        for field, name in own.items()
        if (answer := answers.get(field)) is not None
    }
    listed = [
        (word, text.count(",") + 1) for word in plan.argv
        if re.fullmatch(r"[\w.@/+~]+=[^\[\](){}'\"=]+(,[^\[\](){}'\"=]+)+", text := token(word))
    ]  # fmt: skip
    if listed and "job_config.trials" not in found:
        count = math.prod(number for _, number in listed)
        beside["job_config.trials"] = _candidate(count, listed[0][0].origin, 0.9)
    return beside


def _pairs(known: KnownProgram | None, plan: LaunchPlan) -> Iterator[Setting]:
    """What lists of `key=value` in one option or word say, as settings of their own."""
    flags, _ = parse_flags(plan.argv)
    for name, values, flag in flags:
        if len(values) > 1 and normal_name(name) in _names_of("tasks"):
            joined = ",".join(map(token, values))
            yield Setting((name,), Value(joined, flag_origin(flag)), "arguments", "command")
    if known is None:
        return
    lists = [
        (name, values[0], flag_origin(flag)) for name, values, flag in flags
        if values and normal_name(name) in map(normal_name, known.pairs)
    ]  # fmt: skip
    lists += [
        (name, word, word.origin)
        for name, word in _words(known, plan)
        if name in known.pairs and "=" in token(word)
    ]
    for name, value, origin in lists:
        for part in re.split(r",(?![^{\[(]*[}\])])", token(value)):
            key, equals, text = part.partition("=")
            if equals:
                text = text.strip("\"'")
                data = int(text) if text.isdigit() else text
                yield Setting((name, key.strip()), Value(data, origin), "arguments", known.name)


@cache
def _names_of(field: str) -> frozenset[str]:
    return frozenset(map(normal_name, rules("kinds")["settings"][field]))


def _words(known: KnownProgram, plan: LaunchPlan) -> Iterator[tuple[str, Value]]:
    """The words of a program that are no options, by what they name."""
    own = known.name.split()[1:]
    words = parse_flags(plan.argv)[1]
    skipped = len([part for part in own if part != "*"])
    return iter(zip(known.positional, words[skipped:], strict=False))


def _positional(known: KnownProgram | None, plan: LaunchPlan) -> dict[str, Candidate]:
    if known is None:
        return {}
    return {
        name: _candidate(text, word.origin, 0.9)
        for name, word in _words(known, plan)
        if (text := token(word)) and "=" not in text
    }


def _of_calls(trace: Trace) -> Iterator[Setting]:
    """The keywords of calls that generate, search or serve, as settings."""
    reached = [_patterns("calls")[kind] for kind in ("batch inference", "sweep", "serving")]
    for event in _certain(trace):
        path = event.path
        if path.endswith((".optimize", ".SamplingParams", ".GenerationConfig")) or any(
            pattern.search(path) for pattern in reached
        ):
            for name, value in event.kwargs.items():
                origin = value.origin or _site(event)
                yield Setting((name,), Value(value.data, origin), "call", path)


def _candidate(data: Any, origin: Origin | None, sure: float) -> Candidate:
    return replace(Candidate(data, origin, 100 * sure, rule="kind"), sure=sure)


_SURE = {"command": 0.92, "script": 0.92, "environment": 0.9, "launch": 0.95, "config": 0.85}


def _chosen(field: str, settings: Sequence[Setting], names: Sequence[str]) -> Candidate | None:
    """The value of a field: what was set for the launch, then configurations, then defaults."""
    defaults = field in rules("kinds")["defaults_of"]
    best: tuple[tuple[int, int], Candidate] | None = None
    for rank, setting in settings_named(list(settings), list(names)):
        level = 0 if setting.source in EXPLICIT else 1 if setting.source == "config" else 2
        if level == 2 and not (defaults or setting.kind == "call"):
            continue
        if level and setting.kind == "globals" and not defaults:
            continue
        data = _usable(field, setting.value)
        if data is None or (best is not None and best[0] <= (level, rank)):
            continue
        sure = _SURE.get(setting.source, 0.75)
        best = (level, rank), _candidate(data, setting.value.origin, sure)
    return best[1] if best is not None else None


def _usable(field: str, value: Value) -> int | str | None:
    """The value as this field has it, None where it is no such value."""
    if field not in rules("kinds")["texts"]:
        number = value.number
        if isinstance(value.data, str) and re.fullmatch(r"\d{1,12}", value.data):
            number = int(value.data)
        whole = number is not None and number == int(number) and 0 <= number <= MOST
        return (
            int(number) if whole and number is not None and (number or field == "shots") else None
        )
    parts = value.sequence
    if parts is not None:
        texts = [part.text for part in parts if part.text]
        return ",".join(texts) if texts and len(texts) == len(parts) else None
    text = value.text
    if text is None or len(text) > 300 or text.lower() in rules("kinds")["nothing"]:
        return None
    if field == "model":
        text = _PATH_OF_MODEL.sub("", text)
        text = _pattern("endings").sub("", text)
    return text or None
