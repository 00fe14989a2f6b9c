"""Models that settings and configuration files name."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    best,
    is_launched,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.leaves import Setting, named, normal
from schedmate.agent.fields.model.names import BACKBONES, KIND_OF_PART
from schedmate.agent.fields.model.relations import inner_classes, wholes
from schedmate.agent.fields.model.targets import config_classes, wrong_part
from schedmate.agent.fields.model.uses import is_output, made_folders, used_words
from schedmate.agent.fields.model.words import model_name
from schedmate.agent.fields.words import is_known, is_whole
from schedmate.agent.interp.trace import Trace

_FILES = (
    "cfg",
    "weights",
    "checkpoint",
    "checkpointdir",
    "pretrainedpath",
    "loadpath",
    "initmodel",
)
"""Settings that hold a file; only a file named after a known model names one."""

_OF_BACKBONE, _BACKBONE_ALONE = "backbone of a section", "backbone"
"""Rules: a setting that names a backbone, in a section of the configuration or in none."""
_BACKBONE = frozenset({_OF_BACKBONE, _BACKBONE_ALONE})

_PRETRAINED = 2
"""Names up to this rank mean a pretrained model and nothing else."""

_STRONG = rules("names")["model"].index("model")
"""Names up to this rank mean the model wherever they stand on a command line."""


def from_settings(trace: Trace, settings: list[Setting], built: list[Candidate]) -> list[Candidate]:
    out: list[Candidate] = []
    beside: list[bool] = []
    places: list[tuple[str, tuple[str, ...], int]] = []
    answering: set[str | None] = set()
    used = used_words(trace, built)
    made = made_folders(trace)
    files = {normal(s.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0]) for s in settings}
    answered = _configs_with_a_model(settings)
    whole = _with_parts(settings)
    for rank, setting in named(settings, rules("names")["model"]):
        if wrong_part(setting) or (setting.kind == "globals" and len(setting.path) > 1):
            continue
        text = text_of(setting.value)
        name = model_name(text) if text is not None else None
        if name is None or text is None or is_output(text, made):
            continue
        if _names_something_else(setting, name, files):
            continue
        if setting.key in _FILES and (is_known(name, "datasets") or text in answered):
            continue  # a file named after a dataset holds an experiment
        score = _score(name, rank, setting, _base(name, used), bool(built))
        origin = setting.value.origin
        score = _of_whole(setting, score, whole)
        out.append(Candidate(name, origin, score, rule=_rule(setting)))
        places.append((setting.owner, setting.path[:-1], rank))
        beside.append(setting.key in BACKBONES)
        if rank <= _STRONG and is_known(name, "models") and origin is not None:
            answering.add(origin.file)
    _below_the_chosen(out, beside, answering - {None})
    _below_the_pretrained(out, places)
    targets = config_classes(settings)
    constructed = {str(candidate.data) for candidate in built}
    within = inner_classes(trace)
    for candidate in targets:
        if candidate.origin is not None and candidate.origin.file in whole:
            candidate.score = min(candidate.score, prior.model_setting["type of a part at most"])
        if candidate.data in constructed:
            candidate.score += prior.configured_class["constructed"]
        elif candidate.data in within:
            candidate.score += prior.configured_class["within"]
    _below_the_whole(out, trace, built)
    return _with_classes(out, targets, built)


def _names_something_else(setting: Setting, name: str, files: set[str]) -> bool:
    """Whether a setting whose name may mean a model means something else.

    `files` are the names of configuration files.
    """
    known = is_known(name, "models")
    if setting.key == "learner":
        return not is_whole(name)  # whatever else learns, or an optimiser
    if setting.key in _FILES and not known:
        return True
    if setting.kind == "dataclass":
        # a section's own kind, of all the sections that there are: `dpo.algo = dpo`
        return normal(name) == normal("".join(setting.path[-2:-1]))
    if setting.kind == "globals":
        # a class of this name, `ModelType`, or a name for the run, made from its configuration's
        return normal(name) == setting.key or (normal(name) in files and not known)
    return False


def _below_the_whole(found: list[Candidate], trace: Trace, built: list[Candidate]) -> None:
    """Put backbones behind the network that was constructed around them.

    One that the command itself names yields only to a well-known one.
    """
    names = wholes(trace)
    whole = best(c for c in built if c.data in names)
    if whole is None or whole.score < prior.model["whole"]:
        return
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(whole.data))
    famous = is_known(f"{whole.data} {spelled}", "models")
    for candidate in found:
        if candidate.rule in _BACKBONE and (famous or not is_launched(candidate.origin)):
            candidate.score = min(candidate.score, whole.score - 1)


def _base(name: str, used: set[str]) -> float:
    """How much a name weighs for what the program did by it.

    One that it looked something up by says more than one that stands alone, and one after which
    a class is called that it made, `cut` and `CUTModel`, more still.
    """
    plain = normal(name)
    if len(plain) > 2 and any(plain + kind in used for kind in ("model", "net", "network")):
        return prior.model_setting["base of a class"]
    family = re.match(r"([A-Za-z]{3,})[-_]\d+$", name)  # of `resdcn_18` the function and the size
    looked_up = plain in used or (family and normal(family[1]) in used)
    return prior.model_setting["base looked up" if looked_up else "base"]


def _score(name: str, rank: int, setting: Setting, base: float, built: bool) -> float:
    """How likely the value of a setting is the model's name, from `base` on."""
    origin = setting.value.origin
    if setting.key == "checkpointdir":
        return prior.model_setting["checkpoint"]
    score = base
    times = prior.model_setting["launched source" if setting.explicit else "source"]
    score += source_bonus(origin) * times + prior.model_setting["rank"] * rank
    typed = setting.explicit and setting.kind in ("arguments", "dataclass")
    if typed and rank <= _STRONG:
        looked_up = base >= prior.model_setting["base looked up"] and not is_known(name, "datasets")
        least = prior.model_setting["typed"] + prior.model_setting["rank"] * rank
        score = max(score, least + (prior.model_setting["typed and looked up"] if looked_up else 0))
    elif typed:
        variant = setting.key in _FILES and re.search(r"\d", name)
        least = prior.model_setting["typed otherwise"] + prior.model_setting["typed rank"] * rank
        score = max(score, prior.model_setting["typed"] if variant else least)
    if not built:
        score += prior.model_setting["nothing built"]
    if rank <= _PRETRAINED and setting.source == "config":
        score += prior.model_setting["pretrained"]
    named_so = setting.key == "modelname" and len(setting.path) == 1
    if named_so and setting.source == "config" and re.search(r"\d", name):
        score += prior.model_setting["variant by name"]
    elif is_known(name, "models"):
        # a variant such as resnet50 or swin_tiny says more than the class it is made from
        variant_of = re.search(r"\d|[-_]", name)
        score += prior.model_setting["known variant" if variant_of else "known"]
    elif built and not setting.explicit and is_known(name, "datasets"):
        score += prior.model_setting["dataset"]
    if setting.kind == "globals":
        score += prior.model_setting["globals"]
    if setting.key in _FILES and not setting.explicit:
        score += prior.model_setting["file"]
    if setting.source == "library":
        score += prior.model_setting["library"]
    if "/" in str(setting.value.data) and not is_known(name, "models"):
        if setting.key in ("modelpath", "checkpoint"):
            score += prior.model_setting["written to"]
    return score + _of_part(name, setting)


def _of_part(name: str, setting: Setting) -> float:
    """What counts against a setting that names a part of a model that has its own name."""
    kind = setting.key in BACKBONES and KIND_OF_PART.fullmatch(name)
    return prior.model_setting["kind of backbone"] if kind else 0.0


def _below_the_chosen(
    found: list[Candidate], beside: list[bool], answering: set[str | None]
) -> None:
    """Put backbones, of which `beside` says, behind a model that the launch names.

    `answering` are the files that name a model besides the backbone.
    """
    whole = best(
        [c for c, part in zip(found, beside, strict=True) if not part and is_launched(c.origin)]
    )
    chosen = whole is not None and whole.score >= prior.model["whole setting"]
    for candidate, backbone in zip(found, beside, strict=True):
        file = candidate.origin.file if candidate.origin is not None else None
        if backbone and whole is not None and chosen:
            candidate.score = min(
                candidate.score + prior.model_setting["backbone"], whole.score - 1
            )
        elif backbone and file in answering and not is_launched(candidate.origin):
            candidate.score += prior.model_setting["backbone"]


def _below_the_pretrained(
    found: list[Candidate], places: list[tuple[str, tuple[str, ...], int]]
) -> None:
    """Put a section's name or type behind the pretrained model that it loads.

    `places` are owner, section and rank of the settings that the candidates are from.
    """
    loaded = {
        (owner, section): candidate.score
        for candidate, (owner, section, rank) in zip(found, places, strict=True)
        if rank <= _PRETRAINED and section
    }
    for candidate, (owner, section, rank) in zip(found, places, strict=True):
        limit = loaded.get((owner, section)) if rank > _PRETRAINED else None
        if limit is not None and not is_launched(candidate.origin):
            candidate.score = min(candidate.score, limit - 1)


def _with_parts(settings: list[Setting]) -> set[str]:
    """Files that say of what type the model is, and in a section what its parts are."""
    typed = {s.owner for s in settings if s.path == ("model_type",) and s.source == "config"}
    return typed & {s.owner for s in settings if len(s.path) > 2 and s.path[0] == "model"}


def _of_whole(setting: Setting, score: float, whole: set[str]) -> float:
    """What counts where a file is of `whole`: what it is, and less the types of its parts."""
    if setting.owner not in whole:
        return score
    if setting.path == ("model_type",):
        return score + prior.model_setting["model type"]
    part = setting.key == "type" and len(setting.path) > 1
    return min(score, prior.model_setting["type of a part at most"]) if part else score


def _rule(setting: Setting) -> str:
    """The rule that a setting is a candidate by: as a backbone, or by its name alone."""
    if setting.key not in BACKBONES:
        return "setting"
    nested = len(setting.path) > 1 and not setting.explicit
    return _OF_BACKBONE if nested else _BACKBONE_ALONE


def _with_classes(
    named: list[Candidate], classes: list[Candidate], built: list[Candidate]
) -> list[Candidate]:
    """Both, where a class that is named or well known comes before the backbone it is given."""
    if any(c.score >= prior.model["whole class"] for c in classes) or any(
        c.score >= prior.model["whole network"] and is_known(str(c.data), "models") for c in built
    ):
        for candidate in named:
            if candidate.rule == _OF_BACKBONE:
                candidate.score += prior.model_setting["backbone of a class"]
    return [*named, *classes]


def _configs_with_a_model(settings: list[Setting]) -> set[str]:
    """Configuration files that name the model themselves: their own name is a label of the run."""
    return {
        setting.owner.removeprefix("./")
        for rank, setting in named(settings, rules("names")["model"])
        if setting.kind == "config" and rank <= _STRONG and isinstance(setting.value.data, str)
    }
