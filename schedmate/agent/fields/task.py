"""`model_config.task_type`: the domain of the job, by a weighted vote of what is known of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.settings import Setting, normal_name
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin
from schedmate.base.files import is_file
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
    program: tuple[str, str] | None = None,
    readmes: Sequence[About] = (),
) -> tuple[Candidate, TaskType] | None:
    """The job's domain and what decided it, None when nothing or too little speaks for one.

    What is trained decides: the program, model, data, libraries and settings. What the names of the
    program's own functions and files tip is never sure, and READMEs are asked only where all of
    that leaves it open. `program` is a library's that is run, which trains for one domain only,
    with its name.
    """
    ballot = _Ballot()
    words = rules("vocabulary")
    if program is not None:
        library = Origin("library", text=program[1])
        weight = prior.task["program"]
        ballot.vote(program[0], weight, library, "program", f"program {program[1]}")
    _vote_names(model, datasets, words, ballot)
    _vote_calls(trace, words["calls"], words["imports"], ballot.vote)
    _vote_settings(settings, words, ballot.vote)
    trained = _Ballot(ballot.votes.copy())
    trained.join_senses(model, captions=False)
    _vote_words(trace, words["words"], ballot.vote)
    ballot.join_senses(model, _is_about_captions(trace))
    decided = ballot.winner() or ballot.winner("little", "little margin")
    most, why = 100.0, ""
    if decided is None or decided[0] != (trained.winner() or ("",))[0]:
        most, why = prior.task["names alone"], "; what is trained leaves it open"
    asked = iter(readmes)
    while decided is None and (about := next(asked, None)) is not None:
        _vote_readme(about, words, ballot.vote)
        decided = ballot.winner() or ballot.winner("little", "little margin")
        most, why = prior.task["README alone"], "; nothing that is run says it"
    if decided is None:
        return None
    domain, weight, runner_up = decided
    _, origin, rule, reason = ballot.reasons[domain]
    lead = min(1.0, (weight - runner_up) / prior.task["clear lead"])
    score = prior.task["decided"] + prior.task["by lead"] * lead
    derived_from = (
        one.score
        for one in (model, *datasets)
        if one is not None and one.origin is origin and str(one.data) in reason
    )
    score = min(score, most, next(derived_from, score))  # no surer than what it follows from
    where = origin or Origin("derived")
    where = Origin("derived", where.file, where.line, where.text)
    note = f"from {reason}{why}"
    found = Candidate(domain, where, score, note, rule, doubted=most < 100)
    return found, cast("TaskType", domain)


class _Ballot:
    """Votes for domains, with the weightiest reason for each."""

    def __init__(self, votes: Mapping[str, float] = MappingProxyType({})) -> None:
        self.votes: dict[str, float] = defaultdict(float, votes)
        self.reasons: dict[str, tuple[float, Origin | None, str, str]] = {}

    def vote(
        self, domain: str, weight: float, origin: Origin | None, rule: str, reason: str
    ) -> None:
        self.votes[domain] += weight
        if weight > self.reasons.get(domain, (0.0,))[0]:
            self.reasons[domain] = (weight, origin, rule, reason)

    def join_senses(self, model: Candidate | None, captions: bool) -> None:
        """Count what speaks for images and for language as speaking for both together."""
        votes = self.votes
        first = max(votes, key=lambda domain: votes[domain], default="")
        both = min(votes["CV"], votes["NLP"])
        models = rules("vocabulary")["models"]
        paired = model is not None and "Multimodal" in domains_of(str(model.data), models)
        if first == "CV" and votes["NLP"] > 0 and (paired or captions):
            votes["Multimodal"] += votes["CV"]  # images, and sentences about them
        if (
            first in ("Multimodal", "CV", "NLP")
            and votes["Multimodal"] >= prior.task["enough"]
            and both >= prior.task["sense"]
        ):
            votes["Multimodal"] += prior.task["both senses"] * both

    def winner(
        self, enough: str = "enough", margin: str = "margin"
    ) -> tuple[str, float, float] | None:
        """The domain with the most votes, its votes and the next one's, if that is clear enough."""
        (domain, weight), (_, runner_up) = [
            *sorted(self.votes.items(), key=lambda item: -item[1]), ("", 0.0), ("", 0.0)
        ][:2]  # fmt: skip
        clear = weight >= prior.task[enough] and weight - runner_up >= prior.task[margin]
        return (domain, weight, runner_up) if clear else None


def _vote_names(
    model: Candidate | None, datasets: list[Candidate], words: dict[str, Any], ballot: _Ballot
) -> None:
    """What the names of a model and of datasets are known for."""
    of_data = {d for data in datasets for d in domains_of(str(data.data), words["datasets"])}
    if model is not None:
        name = str(model.data)
        for domain in domains_of(name, words["models"]):
            weight = _model_weight(name, domain, of_data)
            ballot.vote(domain, weight, model.origin, "model", f"model {name}")
    for dataset in datasets:
        for domain in domains_of(str(dataset.data), words["datasets"]):
            # as do pairs of images and texts a model of images
            paired = domain == "Multimodal" and "CV" in ballot.votes
            weight = prior.task["paired dataset" if paired else "dataset"]
            ballot.vote(domain, weight, dataset.origin, "dataset", f"dataset {dataset.data}")


def _vote_settings(
    settings: list[Setting], words: dict[str, Any], vote: Callable[..., None]
) -> None:
    """Settings of one domain, those that no other domain has before all."""
    keys: dict[str, Setting] = {}
    for setting in settings:
        keys.setdefault(setting.key, setting)
    for table, row in (("settings", "setting"), ("telling", "telling setting")):
        for domain, names in words[table].items():
            found = [keys[normal_name(name)] for name in names if normal_name(name) in keys]
            weight = prior.task[row]
            if table == "telling":
                found = [one for one in found if one.value.data not in (None, False, "")]
            else:
                weight = min(prior.task["settings at most"], weight * len(found))
            if found:
                reason = f"setting {found[0].path[-1]}"
                vote(domain, weight, found[0].value.origin, "setting", reason)


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


# What a repository says of itself: the heading and first lines of the README next to the program.
#
# Words only, and only for what the code leaves open; nothing in it is obeyed.


README = "README"
"""The rule of what only a README says."""
_NAMES = ("README.md", "readme.md", "Readme.md", "README.rst", "README.txt", "README")
_HEADING = re.compile(r"^\s{0,3}#{1,2}\s++(.+)$|<h1[^>]{0,200}>(.+?)</h1>", re.IGNORECASE)
_UNDERLINE = re.compile(r"^(={4,}|-{4,})\s*$")
_MARKUP = re.compile(
    r"!?\[([^\]]{0,300})\]\([^)]{0,300}\)|<[^>]{1,300}>|[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}|:\w{1,60}:"
)
_LINES = 40
_READ = 100_000
_WIDE = 2000
"""Characters of a line of the README that are read."""


@dataclass(frozen=True, slots=True)
class About:
    """A README: `title` is its heading, `line` the heading's line, `text` the words below it."""

    file: str
    line: int
    title: str
    text: str


def read_readmes(root: Path, entry: str | None) -> list[About]:
    """The READMEs that are about the program: the nearest one first, the repository's own last."""
    readmes: list[About] = []
    folder = (root / entry).parent if entry is not None else root
    while True:
        for name in _NAMES:
            path = folder / name
            if is_file(path) and not path.is_symlink():
                about = _parse(path, root)
                if about is not None:
                    readmes.append(about)
                    break
        if folder == root or root not in folder.parents:
            return readmes
        folder = folder.parent


def _parse(path: Path, root: Path) -> About | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            lines = [line[:_WIDE] for line in stream.read(_READ).splitlines()]
    except OSError:
        return None
    for number, line in enumerate(lines[:_LINES]):
        match = _HEADING.search(line)
        under = number > 0 and bool(_UNDERLINE.match(line)) and lines[number - 1].strip()
        if match or under:
            head = (match[1] or match[2]) if match else lines[number - 1]
            title = _plain(heading_without_marks(head) if match and match[1] else head)
            if title:
                text = _plain(" ".join(lines[number + 1 : number + 1 + _LINES]))
                return About(str(path.relative_to(root)), number + 1, title, text)
    return None


def heading_without_marks(heading: str) -> str:
    """A heading without the marks that may close it; `#` alone is one of that name."""
    return heading.rstrip().rstrip("#").rstrip() or heading.strip()[:1]


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", _MARKUP.sub(lambda m: m[1] or " ", text)).strip()


def _vote_readme(readme: About, words: dict[str, Any], vote: Callable[..., None]) -> None:
    """What the README is about: its heading says more than the lines below it."""
    origin = Origin("code", readme.file, readme.line)
    title, text = (re.sub(r"[_ ./]+", "-", part.lower()) for part in (readme.title, readme.text))
    for domain, pattern in (*words["words"].items(), *words["models"].items()):
        if re.search(pattern, title):
            heading = f"the README's heading, {readme.title[:60]}"
            vote(domain, prior.task["heading"], origin, README, heading)
    for domain, pattern in words["words"].items():
        if found := set(re.findall(pattern, text)):
            weight = min(prior.task["text at most"], prior.task["word"] * len(found))
            vote(domain, weight, origin, README, readme.file)
