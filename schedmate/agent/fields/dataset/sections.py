"""Datasets of a configuration's sections: one for each loader, role or dataset."""

from __future__ import annotations

import re

from schedmate.agent.configs.class_keys import class_keys
from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, best
from schedmate.agent.fields.dataset.names import class_dataset, dataset_name
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.fields.words import begins_known, is_known

_EVAL_SECTION = re.compile(
    r"(^|_)(val|valid|validation|eval|evaluation|dev|test|testing)(_|$|data|set|loader)",
    re.IGNORECASE,
)


def section_evaluates(setting: Setting) -> bool:
    """Whether a setting stands in a section about evaluation: `data.val.name`."""
    return any(_EVAL_SECTION.search(part) for part in setting.path[:-1]) and not any(
        re.search("train", part, re.IGNORECASE) for part in setting.path[:-1]
    )


_DATA_SECTION = re.compile(
    r"(data|datasets?|corpus)(_?(config|cfg|conf|args|params))?", re.IGNORECASE
)
_PLACE = re.compile(
    r"((processed|local|remote|base|input|full)_)?(src|source|path|root|dir|directory|folder|file|location|uri|url|lmdb|shard|manifest|filelist)s?"
    r"(_?(path|dir|file)s?)?",
    re.IGNORECASE,
)
"""`src` of `dataset: {train: {src: data/x}}`: what it is the place of, its sections tell."""


def placed_by_section(setting: Setting) -> bool:
    """Whether a configuration's section for data says what a place is of."""
    return (
        setting.kind == "config"
        and _PLACE.fullmatch(setting.path[-1]) is not None
        and any(_DATA_SECTION.fullmatch(part) for part in setting.path[:-1])
    )


_SECTION = re.compile(r"(train_?)?datasets", re.IGNORECASE)


_MIXTURE = re.compile(r"sources|(data(set)?_?)?mix(ture|er)", re.IGNORECASE)
"""Sections of weights, one a dataset: `sources: {dclm: 90, code: 10}`."""


_PLACE_KEY = re.compile(
    r"(?P<name>[a-z][\w-]*?)[-_](data[-_]?)?(path|dir|root|shards|folder|file|location)s?",
    re.IGNORECASE,
)


def from_sections(settings: list[Setting]) -> list[Candidate]:
    """Datasets that settings are named after, when no value names them.

    A section of `datasets` for each (`datasets: {coco_caption: {...}}`), and places such as
    `--coco_path`: those of this launch, or the only one that there is.
    """
    sections: dict[str, Setting] = {}
    plain: set[str] = set()
    places: dict[str, Setting] = {}
    for setting in settings:
        if setting.kind == "globals":
            continue
        for parent, name in zip(setting.path, setting.path[1:-1], strict=False):
            if _SECTION.fullmatch(parent):
                sections.setdefault(name, setting)
        if len(setting.path) > 1 and _SECTION.fullmatch(setting.path[-2]):
            plain.add(setting.path[-2])
        weight = setting.value.data
        for depth, parent in enumerate(setting.path[:-1], 1):
            if _MIXTURE.fullmatch(parent) and isinstance(weight, int | float):
                sections.setdefault(".".join(setting.path[depth:]), setting)
        place = _PLACE_KEY.fullmatch(setting.path[-1])
        text = setting.value.data
        if place and isinstance(text, str) and text and begins_known(place["name"]):
            value = dataset_name(text, path=True)
            if value is None or not is_known(value, "datasets"):
                places.setdefault(place["name"].lower(), setting)
    if plain:  # `datasets: [{path: x, mapping: {...}}]`
        sections = {}
    names = [dataset_name(name) for name in sections]
    out = []
    if names and names[0] is not None and None not in names:
        score = prior.section["of datasets"]
        score += prior.section["known"] if is_known(names[0], "datasets") else 0
        out.append(Candidate(names[0], next(iter(sections.values())).value.origin, score))
    for name, setting in places.items():
        if setting.explicit or len(places) == 1:
            score = prior.section["launched place" if setting.explicit else "place"]
            out.append(Candidate(name, setting.value.origin, score))
    return out


_PLACES = ("data_root", "ann_file", "img_dir", "root", "dataset_dir",
                "dataset_root", "data_dir", "data_path", "dataset_path", "anno_path",
                "names")  # fmt: skip


def from_loaders(settings: list[Setting], role: str) -> Candidate | None:
    """The dataset of a config with a section per loader, as OpenMMLab's configs have.

    `role` is a pattern. The dataset class names it where people know that name, else the folder of
    its data does.
    """
    loader = re.compile(rf"^({role})(_?(dataloader|dataset|data|loader|set|\d+))?$", re.IGNORECASE)
    classes = class_keys("path", "class", "name")
    found: dict[str, Setting] = {}
    for setting in settings:
        parts = setting.path[:-1]
        if (
            setting.kind == "config"
            and any(loader.match(part) for part in parts)
            and (any("data" in part.lower() for part in parts))
        ) and (setting.path[-1] in (*classes, *_PLACES) or setting.path[-1].startswith("dataroot")):
            if setting.path[-1] not in classes or re.match(
                rf"dataset|{role}", parts[-1], re.IGNORECASE
            ):
                found.setdefault(setting.path[-1], setting)
    options: list[Candidate] = []
    for key, setting in found.items():
        text = setting.value.data
        if not isinstance(text, str):
            continue
        last = text.rsplit(".", 1)[-1]
        if key not in classes:
            name = dataset_name(text, path=True)
        else:
            name = last if begins_known(last) else class_dataset(last)
        if name is not None:
            score = prior.section["known loader" if is_known(name, "datasets") else "loader"]
            if key.startswith("dataroot"):
                score = prior.section["loader root"]
            score += prior.section["data root"] if key == "data_root" else 0
            options.append(Candidate(name, setting.value.origin, score))
    return best(options)
