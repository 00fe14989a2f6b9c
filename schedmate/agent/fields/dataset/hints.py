"""What names the dataset where the program does not: its launch, its files' names, the README.

Words only, weaker the further they are from the launch; nothing in them is obeyed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import About, without_marks
from schedmate.agent.fields.candidates import Candidate, best, is_launched
from schedmate.agent.fields.dataset.paths import from_path
from schedmate.agent.fields.dataset.roles import CLASS_NAME
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.words import begins_known, is_ambiguous, is_known
from schedmate.agent.interp.objects import Site
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Origin, Unknown

_NOT_DATA = re.compile(
    r"model|arch|net|resume|restore|ckpt|checkpoint|vocab|tokenizer|weight|pretrain|teacher|backbone|init|"
    r"project|user|host|device|stat|label|class|optim|sched|metric|loss|config|cfg|script",
    re.IGNORECASE,
)
"""Settings whose words are not about the data that this run trains on."""
_RUN_NAME = re.compile(
    r"out|log|save|result|dest|(run|exp|expt|experiment|job|wandb)_?(name|id|tag|title)|^(name|tag)$",
    re.IGNORECASE,
)
"""Settings that name the run or its results, often after its data."""
_PART = re.compile(r"[A-Za-z]+|\d+")
LAUNCH, README = "name in the launch", "README"
"""Rules: words of the launch that are no dataset's setting, and what a README says."""
_OF_TESTS = re.compile(r"(^|[/_])test(s|ing)?[/_.]")


def find(
    settings: list[Setting],
    plan: LaunchPlan,
    said: Sequence[About],
    path: Candidate | None = None,
    links: Mapping[str, Site] | None = None,
) -> Candidate | None:
    """The dataset by what stands around the program; None when nothing names one alone.

    `path` is what the program reads, where that is known although it has no name. `links` are
    addresses of datasets in its source.
    """
    return (
        _from_launch(settings, plan, path is None)
        or _from_files(settings, plan)
        or (_from_links(links or {}) if path is None else None)
        or (_from_readme(plan, said) if path is None or _says_less(path, plan) else None)
    )


def _says_less(path: Candidate, plan: LaunchPlan) -> bool:
    """Whether what is read says less than the README: no name, no word of the launch.

    Of `--data_dir data`, the `data/train.txt` that the program opens there is not the launch's.
    """
    words = [str(value.data) for value in [*plan.argv, *plan.facts.values()]]
    whole = any(str(path.data) in word for word in words)
    return (
        path.rule != CLASS_NAME
        and not (whole and is_launched(path.origin))
        and not is_known(str(path.data), "datasets")
    )


def _from_launch(settings: list[Setting], plan: LaunchPlan, any_name: bool) -> Candidate | None:
    """A well-known dataset in what the user gave for this launch: `--dump-root=data/cmu_arctic`."""
    found = []
    for setting in settings:
        text, origin = setting.value.data, setting.value.origin
        given = origin is not None and origin.source in ("command", "script", "environment")
        if given and isinstance(text, str) and not _NOT_DATA.search(setting.path[-1]):
            run = _RUN_NAME.search(setting.path[-1])
            name = _in_path(text) or (None if run or not any_name else _below_data(text))
            if name is not None:
                score = prior.hint["name of the run" if run else "option of the launch"]
                found.append(Candidate(name, origin, score, "a name in the launch", LAUNCH))
    before = ""
    for value in [*plan.argv, *plan.facts.values()]:
        text = value.data.text if isinstance(value.data, Unknown) else value.data
        if isinstance(text, str):
            # a flag's word is among the settings, but for what the machine knows: `${IMAGENET}`
            told = before.startswith("-") and not (
                text is not value.data
                and not _NOT_DATA.search(before)
                and not _RUN_NAME.search(before)
            )
            name = None if told or text.startswith("-") else _in_path(text)
            if name is not None:
                found.append(
                    Candidate(
                        name,
                        value.origin,
                        prior.hint["name of the run"],
                        "a name in the launch",
                        LAUNCH,
                    )
                )
            before = text if "=" not in text else ""
    return best(found)


def _below_data(text: str) -> str | None:
    """`cmu` of `./data/cmu/dump`: the folder or file right below one for data."""
    below = re.search(r"(?:^|/)(?:data|datasets?|corpora)/([^/]+)", text)
    return from_path(below[1]) if below else None


def _from_files(settings: list[Setting], plan: LaunchPlan) -> Candidate | None:
    """A well-known dataset in the name of the script, configuration or program that runs."""
    files = [
        origin.file
        for setting in settings
        if (origin := setting.value.origin) is not None
        and origin.file
        and origin.source in ("script", "config")
    ]
    for file in dict.fromkeys([*files, plan.cwd, plan.entry or ""]):
        name = _in_path(file)
        if name is not None:
            return Candidate(
                name, Origin("code", file, 1), prior.hint["file name"], "named like it", "file name"
            )
    return None


def _from_links(links: Mapping[str, Site]) -> Candidate | None:
    """The one dataset of a hub that the program's source has the address of."""
    found = [item for item in links.items() if not _OF_TESTS.search(item[1].file)]
    if len(found) != 1:
        return None
    [(name, site)] = found
    return Candidate(
        name,
        Origin("code", site.file, site.line),
        prior.hint["address"],
        "an address in the source",
        "address",
    )


def _in_path(text: str) -> str | None:
    """The well-known dataset among a path's words, from its end; None for an ambiguous word."""
    for component in reversed(re.split(r"[/\\=:,\s]+", text)[-6:]):
        parts = list(_PART.finditer(component))
        for length in (4, 3, 2, 1):
            for start in range(len(parts) - length + 1):
                end = parts[start + length - 1].end()
                word = component[parts[start].start() : end]
                if len(word) < 8 and re.match(r"[a-z\d]", component[end:]):
                    continue  # `wmt32` of `wmt32k`
                if len(word) > 2 and begins_known(word) and not is_ambiguous(word):
                    return word
    return None


# -- README ----------------------------------------------------------------

_HEADING = re.compile(r"^\s{0,3}#{1,6}\s++(.+)$")
_RULE = re.compile(r"^(={3,}|-{3,}|~{3,})\s*$")
_ABOUT_DATA = re.compile(r"\bdata(\b|-?sets?\b)|corpus|prepar", re.IGNORECASE)
_NAMED = re.compile(
    r"\[?`?\"?\b([A-Za-z][\w.+-]*)`?\"?(?:\]\([^)]*\))?\s+(data-?\s?set|corpus|benchmark)s?\b"
)
_WORD = re.compile(r"[A-Za-z][\w.+-]*(?:-\d+)?")
_BORROWED = re.compile(
    r"^\W{0,3}(pre-?train|weights?|checkpoint|initial|backbone|normali|mean|format|style|api\b)",
    re.IGNORECASE,
)
_BORROWED_FROM = re.compile(
    r"(pre-?train\w*|weights?|initiali[sz]\w*) (\w+ )?(on|from|with) (the )?\W?$", re.IGNORECASE
)
"""What a dataset's name stands beside that the model, or only the files' form, is of."""
_MAX_SECTION = 120


@dataclass(frozen=True, slots=True)
class _Section:
    heading: str
    start: int
    lines: list[str]


def _sections(lines: Sequence[str]) -> Iterator[_Section]:
    heading, start, fenced = "", 0, False
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        match = None if fenced else _HEADING.match(line)
        under = not fenced and number > start and _RULE.match(line) and lines[number - 1].strip()
        if match or under:
            first = number if match else number - 1
            yield _Section(heading, start, list(lines[start:first]))
            heading, start = (without_marks(match[1]) if match else lines[number - 1]), first
    yield _Section(heading, start, list(lines[start:]))


def _from_readme(plan: LaunchPlan, said: Sequence[About]) -> Candidate | None:
    """The dataset in the section with the command, else in one about data, else in the title."""
    program = (plan.entry or "").rsplit("/", 1)[-1]
    given = {value.data for value in plan.argv if isinstance(value.data, str)}
    for about in said:
        sections = list(_sections(about.lines))
        ranked: list[tuple[float, _Section]] = []
        for section in sections:
            text = "\n".join(section.lines)
            if program and program in text:
                shared = sum(1 for word in given if len(word) > 3 and word in text)
                # many programs are called `main.py`: this one's arguments tell
                ranked.append((10.0 + min(shared, 50) if shared or not given else 2.0, section))
            elif _ABOUT_DATA.search(section.heading):
                ranked.append((1.0, section))
            elif about.title in section.heading:
                ranked.append((0.5, section))
        for rank, section in sorted(ranked, key=lambda item: -item[0]):
            found = _named_in(section, alone=rank < 10)
            if found is not None and not _of_project(found[0], about):
                name, line = found
                score = prior.hint["README command" if rank >= 10 else "README"]
                return Candidate(
                    name, Origin("code", about.file, line), score, "from the README", README
                )
        for text in (about.title, about.folder):
            known = _in_path(text)
            if known is not None:
                origin = Origin("code", about.file, about.line)
                return Candidate(known, origin, prior.hint["README"], "from the README", README)
    return None


def _of_project(name: str, about: About) -> bool:
    """Whether an unknown name is that of the project itself."""
    return not is_known(name, "datasets") and normal(name) in normal(about.folder)


def is_projects(found: Candidate, said: Sequence[About]) -> bool:
    """Whether a place is named for the project that lies there: `~/work/trainer`."""
    name = str(found.data)
    return len(name) > 4 and any(
        _of_project(name, about) and normal(about.folder).endswith(normal(name)) for about in said
    )


def _named_in(section: _Section, alone: bool) -> tuple[str, int] | None:
    """The dataset that a section names alone or much more often than others."""
    counts: Counter[str] = Counter()
    places: dict[str, tuple[str, int]] = {}
    fenced = False
    for number, line in enumerate([section.heading, *section.lines[:_MAX_SECTION]]):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if fenced and not re.search(r"\.(py|sh)\b.* ", line):
            continue  # a listing of the project, or what it prints
        words = {
            match.start(1): match[1]
            for match in _NAMED.finditer(line)
            if _is_name(match[1]) and not _BORROWED_FROM.search(line[: match.start()])
        }
        for match in _WORD.finditer(line):
            word = match[0].strip(".-_")
            after = line[match.end() :]
            if after.startswith("/"):
                continue  # a folder of the project
            borrowed = _BORROWED.match(after) or _BORROWED_FROM.search(line[: match.start()])
            if _is_name(word) and begins_known(word) and not borrowed:
                words.setdefault(match.start(), word)
        for word in words.values():
            key = re.sub(r"[^a-z0-9]", "", word.lower())
            counts[key] += 1
            places.setdefault(key, (word, section.start + max(number, 1)))
    ranked = counts.most_common(2)
    if not ranked or (len(ranked) > 1 and (alone or ranked[0][1] < 2 * ranked[1][1])):
        return None
    return places[ranked[0][0]]


def _is_name(word: str) -> bool:
    """Whether a word of a sentence is a name: it has digits or capitals inside."""
    return (
        len(word) > 2
        and bool(re.search(r"\d|[A-Z].*[A-Z]|[a-z][A-Z]", word))
        and not is_ambiguous(word)
        and (is_known(word, "datasets") or not is_known(word, "models"))
        and not re.fullmatch(
            r"(HDF5|JSON|CSV|TSV|LMDB|RGB|GPU|CPU|URL|API|NLP|CV|VAE|GAN|COLMAP|WebDataset|SFT|DPO|RLHF|"
            r"YOUR\w*|\w*\.\w{1,5})",
            word,
        )
    )
