"""`model_config.model_name`: the architecture that this launch trains.

Chosen among what settings and configuration files name, what files and folders are called, and what
the code builds (`model_built.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice

from schedmate.agent.configs.trees import class_keys
from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    best_candidate,
    by_rule,
    is_known,
    is_launched,
    is_whole,
    pattern_of,
    rules,
    source_bonus,
    text_of,
    word_list,
)
from schedmate.agent.fields.model_built import (
    BACKBONES,
    BUILT_WITH,
    CONSTRUCTED,
    KIND_OF_PART,
    NOT_MODEL,
    PLAIN_FILE,
    built_models,
    inner_networks,
    model_name,
    models_from_calls,
    whole_networks,
)
from schedmate.agent.fields.settings import Setting, normal_name, settings_named
from schedmate.agent.interp.trace import Trace
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Origin


def find_model(trace: Trace, settings: list[Setting], entry: str | None = None) -> Candidate | None:
    """The model's name, None when the code does not say; `entry` is the program's file."""
    weighed = _weigh_sources(trace, settings, entry)
    chosen = _choose_model(trace, settings, entry, weighed)
    return None if chosen is None else replace(chosen, considered=weighed.all)


def _choose_model(
    trace: Trace,
    settings: list[Setting],
    entry: str | None,
    weighed: _Sources,
) -> Candidate | None:
    chosen = _model_from_code(weighed, entry)
    if chosen is not None and BARE.fullmatch(str(chosen.data)):
        named = models_from_settings(trace, settings, [])
        other = best_candidate(
            c
            for c in named
            if c.score >= prior.model["known in place of a bare name"]
            and is_known(str(c.data), "models")
        )
        if other is None:
            written = (c for c in named if c.source in _WRITTEN)
            telling = (c for c in written if not BARE.fullmatch(str(c.data)))
            other = best_candidate(
                c
                for c in telling
                if c.score >= prior.model["given in place of a bare name"]
                and not KIND_OF_PART.fullmatch(str(c.data))
            )
        if other is None:
            other = best_candidate(
                [*models_from_experiments(settings), *models_from_folder_names(settings)]
            )
        if other is None:
            within = [
                c
                for c in built_models(trace)
                if c.score >= prior.model["network in place of a bare name"]
                and _is_telling(str(c.data))
            ]
            other = best_candidate([*within, *models_from_folder(entry)])
        if other is not None:
            return other
    if chosen is None:
        chosen = best_candidate(models_from_file_names(settings))
    return chosen


def _is_telling(name: str) -> bool:
    """Whether the vocabulary knows a name that could not be of any model."""
    return is_known(name, "models") and not BARE.fullmatch(name)


_WRITTEN = (*EXPLICIT, "config")
"""Where a setting is from that somebody wrote for this run."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """What the code and its settings say: `given` by settings, `named` by experiments, `all`."""

    given: list[Candidate]
    named: list[Candidate]
    all: list[Candidate]


def _weigh_sources(trace: Trace, settings: list[Setting], entry: str | None) -> _Sources:
    networks = built_models(trace)
    from_settings = models_from_settings(trace, settings, networks)
    named = [c for c in models_from_experiments(settings) if is_whole(c.data)]
    calls = by_rule("call", models_from_calls(trace))
    every = [*from_settings, *calls, *networks, *named, *models_from_entry(trace, entry)]
    serving = _in_a_role(settings, every)
    if serving:
        from_settings = [one for one in from_settings if id(one) not in serving]
        every = [one for one in every if id(one) not in serving]
    return _Sources(from_settings, named, every)


def _in_a_role(settings: list[Setting], candidates: list[Candidate]) -> set[int]:
    """Candidates, by identity, that a setting names as what serves the model that is trained.

    A teacher, a reference or reward model, a tokenizer or the encoder of another modality is no
    model of the job, unless nothing else is one.
    """
    role = re.compile("|".join(rules("names")["role"]))
    texts = [s for s in settings if isinstance(s.value.data, str) and s.value.origin is not None]
    roles = {id(s): s.value.origin for s in texts if role.search(s.key)}
    places = set(roles.values())
    named: dict[bool, set[tuple[Origin | None, str | None]]] = {True: set(), False: set()}
    for setting in texts if roles else ():
        if setting.value.origin in places:
            name = model_name(text_of(setting.value) or "")
            named[id(setting) in roles].add((setting.value.origin, name))
    # a tokenizer's name that is the model's own by default has the model's origin
    origins = named[True] - named[False]
    known = [one for one in candidates if one.origin is not None]
    serving = {id(one) for one in known if (one.origin, one.data) in origins}
    others = (one for one in candidates if id(one) not in serving and one.rule not in _BY_NAME)
    return serving if next(others, None) is not None else set()


def _model_from_code(weighed: _Sources, entry: str | None) -> Candidate | None:
    from_settings, named = weighed.given, weighed.named
    best = best_candidate(weighed.all)
    if best is not None and best.rule in CONSTRUCTED:
        # a variant the user named, yolov7 beside a class found in yolo.py, says more
        stem = normal_name(str(best.data))
        for candidate in from_settings:
            longer = normal_name(str(candidate.data))
            # and not a run, named after all that it does
            said_more = longer.startswith(stem) and len(stem) < len(longer) < len(stem) + 40
            if candidate.score >= prior.model["variant"] and said_more:
                return candidate
        for candidate in named:
            if stem in normal_name(str(candidate.data)):
                return candidate
    if best is not None:
        # where settings name the same thing, they are the better evidence
        for candidate in from_settings:
            if normal_name(str(candidate.data)) == normal_name(str(best.data)):
                return replace(candidate, score=max(best.score, candidate.score))
    if entry is not None and best is not None and best.data in ("Model", "Sequential"):
        stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
        if not PLAIN_FILE.match(stem) and stem.lower() not in word_list("not_models"):
            return Candidate(
                stem, Origin("code", entry, 1), prior.model["script"], "the script's name", SCRIPT
            )
    return best


# Models that configuration files and the program's own file are named after.


FILE_NAME, SCRIPT = "file name", "script"
"""Rules: the model is named by a configuration file, by the program's file."""
_BY_NAME = (FILE_NAME, SCRIPT)

_VARIANT = pattern_of("model.variant")
"""What says of a known model which one it is, up to the end of a word."""


def models_from_file_names(settings: list[Setting]) -> list[Candidate]:
    """Models after which the configuration files are named that the launch gives."""
    launched = [s for s in settings if s.explicit and isinstance(s.value.data, str)]
    candidates = []
    for setting in launched:
        file = re.search(r"([^/]+)\.(ya?ml|py|jsonn?e?t?|toml|gin|conf)$", str(setting.value.data))
        named = _known_model_in(file[1]) if file is not None else None
        if named is not None and len(normal_name(named[0])) > 2:
            note = "the configuration's name"
            score = prior.model["configuration file"] + (
                prior.model["whole file name"] if named[1] else 0
            )
            candidates.append(Candidate(named[0], setting.value.origin, score, note, FILE_NAME))
    return candidates


def models_from_experiments(settings: list[Setting]) -> list[Candidate]:
    """Known models among the names that configuration files give themselves."""
    score, note = prior.model["experiment name"], "the configuration's name"
    return [
        Candidate(setting.value.data, setting.value.origin, score, note, FILE_NAME)
        for setting in settings
        if setting.path == ("name",) and setting.kind == "config"
        if isinstance(setting.value.data, str) and is_known(setting.value.data, "models")
    ]


def models_from_entry(trace: Trace, entry: str | None) -> list[Candidate]:
    """A script named after what it trains, where it builds a nameless model or an agent."""
    if entry is None or not trace.calls:
        return []
    stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
    stem = re.sub(
        r"^(train|run|main|pretrain|finetune)_|_(train|main|run|training|trainer)$", "", stem
    )
    stem = re.sub(r"^[a-z]?\d+_(?=[A-Za-z])", "", stem)
    stem = BUILT_WITH.sub("", stem)
    named = _known_model_in(stem)
    if named is None:
        return []
    score = prior.model["script of a model" if named[1] else "script with a model"]
    return [Candidate(named[0], Origin("code", entry, 1), score, "the script's name", SCRIPT)]


def models_from_folder_names(settings: list[Setting]) -> list[Candidate]:
    """Models after which configuration files or the folders that hold them are named."""
    files = {setting.owner for setting in settings if setting.kind == "config"}
    score, note = prior.model["configuration place"], "the configuration's place"
    return [
        Candidate(part, Origin("config", file, 1), score, note, FILE_NAME)
        for file in sorted(files)
        for part in file.rsplit(".", 1)[0].split("/")
        if is_whole(part) and not is_known(part, "datasets")
    ]


def models_from_folder(entry: str | None) -> list[Candidate]:
    """Folders named after a model that the program is in: `dreamerv3/main.py`."""
    named = [_known_model_in(folder) for folder in (entry or "").split("/")[:-1]]
    place = Origin("code", entry, 1)
    note = "the script's folder"
    return [
        Candidate(found[0], place, prior.model["script"], note, SCRIPT) for found in named if found
    ]


def _known_model_in(stem: str) -> tuple[str, bool] | None:
    """The known model, and which of its kind, in a file's name; whether that begins with it."""
    vocabulary = re.compile("|".join(rules("vocabulary")["models"].values()))
    spelled = re.sub(r"[_ .]", "-", stem.lower())
    spans = [
        (spelled.rfind("-", 0, match.start() + 1) + 1, variant.end())
        for match in vocabulary.finditer(spelled)
        if (variant := _VARIANT.match(spelled, match.end())) is not None
        if f"-{spelled}"[match.start()] == "-" or match[0] in ("gan", "bert", "gpt", "vae")
        if match[0].strip("-") not in word_list("script_words") - {"gan"}
        if not is_known(match[0].strip("-"), "datasets")
    ]
    start, end = max(spans, key=lambda place: place[1] - place[0], default=(0, 0))
    name = stem[start:end].strip("-_. ")
    return (
        (name, not start) if name and normal_name(name) not in word_list("script_words") else None
    )


BARE = pattern_of("model.bare")
"""Names of classes that could be of any model."""


# Models that settings and configuration files name.


_FILES = word_list("model_files")
"""Settings that hold a file; only a file named after a known model names one."""

_OF_BACKBONE, _BACKBONE_ALONE = "backbone of a section", "backbone"
"""Rules: a setting that names a backbone, in a section of the configuration or in none."""
_BACKBONE = frozenset({_OF_BACKBONE, _BACKBONE_ALONE})

_PRETRAINED = 2
"""Names up to this rank mean a pretrained model and nothing else."""

_STRONG = rules("names")["model"].index("model")
"""Names up to this rank mean the model wherever they stand on a command line."""


def models_from_settings(
    trace: Trace, settings: list[Setting], built: list[Candidate]
) -> list[Candidate]:
    out: list[Candidate] = []
    beside: list[bool] = []
    places: list[tuple[str, tuple[str, ...], int]] = []
    answering: set[str | None] = set()
    used = used_words(trace, built)
    made = made_folders(trace)
    files = {normal_name(s.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0]) for s in settings}
    answered = _configs_with_a_model(settings)
    whole = _with_parts(settings)
    for rank, setting in settings_named(settings, rules("names")["model"]):
        if is_wrong_part(setting) or (setting.kind == "globals" and len(setting.path) > 1):
            continue
        text = text_of(setting.value)
        name = model_name(text) if text is not None else None
        if name is None or text is None or is_output(text, made):
            continue
        if _names_something_else(setting, name, files):
            continue
        if setting.key in _FILES and (is_known(name, "datasets") or text in answered):
            continue  # a file named after a dataset holds an experiment
        score = _setting_score(name, rank, setting, _base_points(name, used), bool(built))
        origin = setting.value.origin
        score = _of_whole(setting, score, whole)
        out.append(Candidate(name, origin, score, rule=_setting_rule(setting)))
        places.append((setting.owner, setting.path[:-1], rank))
        beside.append(setting.key in BACKBONES)
        if rank <= _STRONG and is_known(name, "models") and origin is not None:
            answering.add(origin.file)
    _below_the_chosen(out, beside, answering - {None})
    _below_the_pretrained(out, places)
    targets = models_from_classes(settings)
    constructed = {str(candidate.data) for candidate in built}
    within = inner_networks(trace)
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
    is_known_model = is_known(name, "models")
    if setting.key == "learner":
        return not is_whole(name)  # whatever else learns, or an optimiser
    if setting.key in _FILES and not is_known_model:
        return True
    if setting.kind == "dataclass":
        # a section's own kind, of all the sections that there are: `dpo.algo = dpo`
        return normal_name(name) == normal_name("".join(setting.path[-2:-1]))
    if setting.kind == "globals":
        # a class of this name, `ModelType`, or a name for the run, made from its configuration's
        return normal_name(name) == setting.key or (
            normal_name(name) in files and not is_known_model
        )
    return False


def _below_the_whole(candidates: list[Candidate], trace: Trace, built: list[Candidate]) -> None:
    """Put backbones behind the network that was constructed around them.

    One that the command itself names yields only to a well-known one.
    """
    names = whole_networks(trace)
    whole = best_candidate(c for c in built if c.data in names)
    if whole is None or whole.score < prior.model["whole"]:
        return
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(whole.data))
    famous = is_known(f"{whole.data} {spelled}", "models")
    for candidate in candidates:
        if candidate.rule in _BACKBONE and (famous or not is_launched(candidate.origin)):
            candidate.score = min(candidate.score, whole.score - 1)


def _base_points(name: str, used: set[str]) -> float:
    """How much a name weighs for what the program did by it.

    One that it looked something up by says more than one that stands alone, and one after which
    a class is called that it made, `cut` and `CUTModel`, more still.
    """
    plain = normal_name(name)
    if len(plain) > 2 and any(plain + kind in used for kind in ("model", "net", "network")):
        return prior.model_setting["base of a class"]
    family = re.match(r"([A-Za-z]{3,})[-_]\d+$", name)  # of `resdcn_18` the function and the size
    looked_up = plain in used or (family and normal_name(family[1]) in used)
    return prior.model_setting["base looked up" if looked_up else "base"]


def _setting_score(name: str, rank: int, setting: Setting, base: float, built: bool) -> float:
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
    candidates: list[Candidate], beside: list[bool], answering: set[str | None]
) -> None:
    """Put backbones, of which `beside` says, behind a model that the launch names.

    `answering` are the files that name a model besides the backbone.
    """
    whole = best_candidate(
        [
            c
            for c, part in zip(candidates, beside, strict=True)
            if not part and is_launched(c.origin)
        ]
    )
    chosen = whole is not None and whole.score >= prior.model["whole setting"]
    for candidate, backbone in zip(candidates, beside, strict=True):
        file = candidate.origin.file if candidate.origin is not None else None
        if backbone and whole is not None and chosen:
            candidate.score = min(
                candidate.score + prior.model_setting["backbone"], whole.score - 1
            )
        elif backbone and file in answering and not is_launched(candidate.origin):
            candidate.score += prior.model_setting["backbone"]


def _below_the_pretrained(
    candidates: list[Candidate], places: list[tuple[str, tuple[str, ...], int]]
) -> None:
    """Put a section's name or type behind the pretrained model that it loads.

    `places` are owner, section and rank of the settings that the candidates are from.
    """
    loaded = {
        (owner, section): candidate.score
        for candidate, (owner, section, rank) in zip(candidates, places, strict=True)
        if rank <= _PRETRAINED and section
    }
    for candidate, (owner, section, rank) in zip(candidates, places, strict=True):
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


def _setting_rule(setting: Setting) -> str:
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
        for rank, setting in settings_named(settings, rules("names")["model"])
        if setting.kind == "config" and rank <= _STRONG and isinstance(setting.value.data, str)
    }


# Classes that configuration files name for the program to construct.


_WRONG_PART = pattern_of("model.wrong_part")


def is_wrong_part(setting: Setting) -> bool:
    """Whether a setting stands in a section of something else than the model."""
    return any(_WRONG_PART.search(part) for part in setting.path[:-1])


_MODEL_SECTION = pattern_of("model.model_section")
_ASSEMBLY = pattern_of("model.assembly")
"""Classes that only put parts together, of which one gives the model its name."""


def models_from_classes(settings: list[Setting]) -> list[Candidate]:
    """`model: {type: X}` and `model: {_target_: pkg.X}` of config-driven programs."""
    out: list[Candidate] = []
    sides = Counter(
        setting.path[0].lower()
        for setting in settings
        if len(setting.path) == 3 and setting.path[-1] == "_target_"
    )
    for setting in settings:
        key, parts = setting.path[-1], [part.lower() for part in setting.path[:-1]]
        if key not in class_keys("path", "class", "tag") or not parts:
            continue
        if not _MODEL_SECTION.match(parts[-1]) and parts[0] != "model":
            continue
        if is_wrong_part(setting) or len(parts) > 4:
            continue
        text = text_of(setting.value)
        if text is None or (key == "__tag__" and not text.startswith(("!new:", "!name:"))):
            continue
        score = prior.configured_class["named"]
        score += prior.configured_class["deeper"] * max(
            0, len(parts) - (2 if parts[-1] == "model" else 1)
        )
        name = re.sub(r"\.v\d+$", "", text).rsplit(".", 1)[-1]  # `spacy.Tok2Vec.v2`
        if name in ("model", "network") and "." in text:
            name = text.split(".")[-2]  # a module of the package that is named after it
        if name in word_list("not_models") or NOT_MODEL.search(name):
            continue
        if _ASSEMBLY.fullmatch(name):
            out.extend(_assembled_models(setting, settings))
            score += prior.configured_class["assembly"]
        inner = parts[-1] in word_list("inner_sections") and (
            len(parts) > 1 or parts[-1] == "network_g"
        )
        if inner and any(re.fullmatch(r"(agent|algo(rithm)?)s?", part) for part in parts[:-1]):
            score += prior.configured_class["of an agent"]
        elif inner and parts[-1] != "unet_config":
            score += prior.configured_class["inner"]
        if parts[0] == "model" and len(parts) == 2 and not inner and sides[parts[0]] > 1:
            score += prior.configured_class["one of several"]
        if re.search(r"^Lit[A-Z]|Lit$|Module$|Wrapper|Lightning|Task$", name) and not inner:
            score += prior.configured_class["wrapper"]
        out.append(Candidate(name, setting.value.origin, score, rule="configured class"))
    return out


def _assembled_models(setting: Setting, settings: list[Setting]) -> list[Candidate]:
    """The name of an assembly: from its configuration file's name, its head, or its backbone."""
    points, rule = prior.part_of_an_assembly, "part of an assembly"
    words = re.split(r"[_.]", setting.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0])
    known = (w for w in words if is_known(w, "models") and not is_known(w, "datasets"))
    origin, note = setting.value.origin, "the configuration's name"
    candidates = [
        Candidate(word, origin, points["file name"], note, rule) for word in islice(known, 1)
    ]
    section = [part.lower() for part in setting.path[:-1]]
    for other in settings:
        parts = [part.lower() for part in other.path]
        text = text_of(other.value)
        if other.owner != setting.owner or len(parts) < 3 or parts[:-2] != section or text is None:
            continue
        if parts[-1] not in class_keys("path", "class", "tag"):
            continue
        name, origin = text.rsplit(".", 1)[-1], other.value.origin
        if parts[-2] == "backbone":
            candidates.append(Candidate(name, origin, points["backbone"], rule=rule))
        elif parts[-2] == "decode_head" and is_known(name, "models"):
            head = name.removesuffix("Head")
            candidates.append(Candidate(head, origin, points["head"], rule=rule))
    return candidates


# What the program did with words and folders, which tells what a setting's value means.


_MAKES = ("os.makedirs", "os.mkdir", "pathlib.Path().mkdir", "tensorboard.SummaryWriter")


def made_folders(trace: Trace) -> list[str]:
    """Folders that the program makes: where it writes."""
    given = (event.args[0].data for event in trace.calls if event.path in _MAKES and event.args)
    return [folder for folder in given if isinstance(folder, str) and "/" in folder]


def is_output(text: str, made: list[str]) -> bool:
    """Whether a path is a folder that the program makes, or makes others in."""
    place = text.rstrip("/")
    return "/" in place and any(
        folder.removeprefix("./").rstrip("/") == place.removeprefix("./")
        or folder.startswith(f"{place}/")
        for folder in made
    )


def used_words(trace: Trace, built: list[Candidate]) -> set[str]:
    """Normalised names that were called, or passed to something that was."""
    words = {normal_name(str(candidate.data)) for candidate in built}
    words |= {normal_name(name) for name in trace.looked_up}
    for event in trace.calls:
        if event.function:
            words.add(normal_name(event.function))
        words.add(normal_name(classes.last_part(event.path)))
        for value in event.args[:3]:
            if isinstance(value.data, str) and len(value.data) < 80:
                words.add(normal_name(value.data))
    return words
