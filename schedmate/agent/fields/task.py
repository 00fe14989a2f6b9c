"""`model_config.task_type`: the domain of the job, by a weighted vote of what is known of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import README, About
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.settings import Setting, normal_name
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin
from schedmate.jobs import TaskType

_PLAIN = re.compile(
    r"(bi|simple|vanilla|stacked|my|base)?[-_]?(lstm|gru|rnn|mlp|cnn|transformer|u-?net|dit)s?"
    r"([-_]?(model|net|network|classifier|regressor))?",
    re.IGNORECASE,
)

_GAN = re.compile(r"gan(model|trainer)?$", re.IGNORECASE)
"""Adversarial networks are trained on voices and series as well as on images."""
_SEQUENCES = re.compile(r"mamba|rwkv|hyena", re.IGNORECASE)
"""Networks for sequences of anything, of which the first were sentences."""
_CAPTION = re.compile(r"caption", re.IGNORECASE)


def find_task(
    trace: Trace,
    settings: list[Setting],
    model: Candidate | None,
    datasets: list[Candidate],
    readmes: Sequence[About] = (),
    program: tuple[str, str] | None = None,
) -> tuple[Candidate, TaskType] | None:
    """The job's domain and what decided it, None when nothing or too little speaks for one.

    `program` is a library's that is run, which trains for one domain only, with its name.

    `readmes` are asked only where the program itself leaves it open.
    """
    votes: dict[str, float] = defaultdict(float)
    reasons: dict[str, tuple[float, Origin | None, str, str]] = {}

    sources = [*([model] if model is not None else []), *datasets]

    def vote(domain: str, weight: float, origin: Origin | None, rule: str, reason: str) -> None:
        votes[domain] += weight
        if weight > reasons.get(domain, (0.0, None, "", ""))[0]:
            reasons[domain] = (weight, origin, rule, reason)

    words = rules("vocabulary")
    if program is not None:
        vote(
            program[0],
            prior.task["program"],
            Origin("library", text=program[1]),
            "program",
            f"program {program[1]}",
        )
    of_data = {d for data in datasets for d in domains_of(str(data.data), words["datasets"])}
    if model is not None:
        name = str(model.data)
        for domain in domains_of(name, words["models"]):
            vote(
                domain, _model_weight(name, domain, of_data), model.origin, "model", f"model {name}"
            )
    for dataset in datasets:
        for domain in domains_of(str(dataset.data), words["datasets"]):
            # as do pairs of images and texts a model of images
            paired = domain == "Multimodal" and "CV" in votes
            weight = prior.task["paired dataset" if paired else "dataset"]
            vote(domain, weight, dataset.origin, "dataset", f"dataset {dataset.data}")
    _vote_calls(trace, words["calls"], words["imports"], vote)
    _vote_words(trace, words["words"], vote)
    keys: dict[str, Setting] = {}
    for setting in settings:
        keys.setdefault(setting.key, setting)
    for domain, names in words["settings"].items():
        set_keys = [keys[normal_name(name)] for name in names if normal_name(name) in keys]
        if set_keys:
            weight = min(prior.task["settings at most"], prior.task["setting"] * len(set_keys))
            reason = f"setting {set_keys[0].path[-1]}"
            vote(domain, weight, set_keys[0].value.origin, "setting", reason)
    for domain, names in words["telling"].items():
        matching = [keys[normal_name(name)] for name in names if normal_name(name) in keys]
        switched_on = [
            setting for setting in matching if setting.value.data not in (None, False, "")
        ]
        if switched_on:
            vote(
                domain,
                prior.task["telling setting"],
                switched_on[0].value.origin,
                "setting",
                f"setting {switched_on[0].path[-1]}",
            )
    both = _vote_both_senses(votes, trace, model)
    decided = _clear_winner(votes)
    asked = iter(readmes)
    while decided is None and (about := next(asked, None)) is not None:
        _vote_readme(about, words, vote)
        both = both or _vote_both_senses(votes, trace, model)
        decided = _clear_winner(votes)
    decided = decided or _clear_winner(votes, "little", "little margin")
    if decided is None:
        return None
    domain, weight, runner_up = decided
    _, origin, rule, reason = reasons[domain]
    lead = min(1.0, (weight - runner_up) / prior.task["clear lead"])
    score = prior.task["decided"] + prior.task["by lead"] * lead
    derived_from = (c.score for c in sources if c.origin is origin and str(c.data) in reason)
    score = min(score, next(derived_from, score))  # no surer than what it follows from
    where = origin or Origin("derived")
    where = Origin("derived", where.file, where.line, where.text)
    return Candidate(domain, where, score, f"from {reason}", rule), cast("TaskType", domain)


def _vote_both_senses(votes: dict[str, float], trace: Trace, model: Candidate | None) -> bool:
    """Count what speaks for images and for language as speaking for both together; if it does."""
    first = max(votes, key=lambda domain: votes[domain], default="")
    both = min(votes["CV"], votes["NLP"])
    models = rules("vocabulary")["models"]
    paired = model is not None and "Multimodal" in domains_of(str(model.data), models)
    about = first == "CV" and votes["NLP"] > 0 and (paired or _is_about_captions(trace))
    if about:
        votes["Multimodal"] += votes["CV"]  # images, and sentences about them
    senses = ("Multimodal", "CV", "NLP")
    if (
        first in senses
        and votes["Multimodal"] >= prior.task["enough"]
        and both >= prior.task["sense"]
    ):
        votes["Multimodal"] += prior.task["both senses"] * both
        return True
    return about


def _is_about_captions(trace: Trace) -> bool:
    """Whether what the program reads or writes are sentences about images."""
    return sum(bool(_CAPTION.search(name)) for name in _own_names(trace)) >= 3


def _own_names(trace: Trace) -> set[str]:
    """The program's own names: of classes, functions and files."""
    names = {event.cls.name for event in trace.calls if event.cls is not None}
    return names | set(trace.functions) | {event.site.file for event in trace.calls}


def _model_weight(name: str, domain: str, of_data: set[str]) -> float:
    """What a model's name counts for: a bare LSTM is at home anywhere, a GAN in many places.

    An image-text model outweighs a set of images. Graphs, series and sentences are made of users,
    molecules or bodies: where the data are `of_data`, of one of these, they say what it is about.
    """
    if _PLAIN.fullmatch(name):
        return prior.task["plain model"]
    if domain in ("Graph", "TimeSeries") and of_data and domain not in of_data:
        return prior.task["model of other data"]
    if domain == "NLP" and of_data and of_data <= {"Recommendation", "TimeSeries", "Science"}:
        return prior.task["model of other data"]
    if domain == "NLP" and _SEQUENCES.search(name):
        return prior.task["sequences"]
    if _GAN.search(name):
        return prior.task["adversarial"]
    return prior.task["multimodal model" if domain == "Multimodal" else "model"]


def _clear_winner(
    votes: dict[str, float], enough: str = "enough", margin: str = "margin"
) -> tuple[str, float, float] | None:
    """The domain with the most votes, its votes and the next one's, if that is clear enough."""
    ordered = sorted(votes.items(), key=lambda item: -item[1])
    if not ordered:
        return None
    domain, weight = ordered[0]
    runner_up = ordered[1][1] if len(ordered) > 1 else 0.0
    clear = weight >= prior.task[enough] and weight - runner_up >= prior.task[margin]
    return (domain, weight, runner_up) if clear else None


def _vote_readme(
    readme: About, tables: dict[str, dict[str, str]], vote: Callable[..., None]
) -> None:
    """What the README is about: its heading says more than the lines below it."""
    origin = Origin("code", readme.file, readme.line)
    title, text = (re.sub(r"[_ ./]+", "-", part.lower()) for part in (readme.title, readme.text))

    def vote_heading(domain: str, pattern: str) -> None:
        if re.search(pattern, title):
            heading = f"the README's heading, {readme.title[:60]}"
            vote(domain, prior.task["heading"], origin, README, heading)

    for domain, pattern in tables["words"].items():
        vote_heading(domain, pattern)
        words = set(re.findall(pattern, text))
        if words:
            score = min(prior.task["text at most"], prior.task["word"] * len(words))
            vote(domain, score, origin, README, f"{readme.file}")
    for domain, pattern in tables["models"].items():
        vote_heading(domain, pattern)


def _vote_words(trace: Trace, table: dict[str, str], vote: Callable[..., None]) -> None:
    """What the program's own names are about: many different ones say more than one."""
    split = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_/.]")
    texts = {split.sub("-", name).lower() for name in _own_names(trace)}
    for domain, pattern in table.items():
        matching = [text for text in sorted(texts) if re.search(pattern, text)]
        if matching:
            vote(
                domain,
                min(prior.task["names at most"], prior.task["word"] * len(matching)),
                None,
                "names",
                f"names such as {matching[0]}",
            )


def domains_of(name: str, table: dict[str, str]) -> list[str]:
    """Domains whose vocabulary has the name; of several, those with the longest match."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    texts = {re.sub(r"[_ ./]+", "-", form.lower()) for form in (name, split)}
    match_lengths: dict[str, int] = {}
    for domain, pattern in table.items():
        for text in texts:
            for match in re.finditer(pattern, text):
                match_lengths[domain] = max(match_lengths.get(domain, 0), len(match.group()))
    if not match_lengths:
        return []
    longest = max(match_lengths.values())
    return [domain for domain, length in match_lengths.items() if length == longest]


def _vote_calls(
    trace: Trace, table: list[list[object]], mostly: dict[str, list[str]], vote: Callable[..., None]
) -> None:
    """Each kind of library speaks once, however often it is called.

    One that is only imported speaks where it is of one domain alone, or `mostly` of one.
    """
    domains_of: dict[str, set[object]] = defaultdict(set)
    for pattern, domain, _ in table:
        for name in _roots(pattern):
            domains_of[name].add(domain)
    firsts: dict[str, CallEvent] = {}  # of the calls of each path
    for event in trace.calls:
        firsts.setdefault(event.path, event)
    for pattern, domain, weight in table:
        compiled = re.compile(str(pattern))
        for event in firsts.values():
            if compiled.search(event.path):
                amount = float(cast("float", weight)) * (
                    1.0 if event.certain else prior.task["call unsure"]
                )
                origin = Origin("code", event.site.file, event.site.line)
                vote(str(domain), amount, origin, "call", event.path.split("()")[0])
                break
        else:
            names = {name for name in _roots(pattern) if len(domains_of[name]) == 1}
            names |= _roots(pattern) & set(mostly.get(str(domain), []))
            if names & trace.imports:
                vote(str(domain), float(cast("float", weight)) * prior.task["import"], None,
                     "import", f"import {min(names & trace.imports)}")  # fmt: skip


def _roots(pattern: object) -> set[str]:
    """The packages that a pattern of calls begins with."""
    root = re.match(r"^\^\(?([\w|]+)", str(pattern))
    return set(root[1].split("|")) if root else set()
