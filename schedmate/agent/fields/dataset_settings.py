"""Datasets that settings name: a flag, a configuration's key, section or component.

Which settings tell the data is seen by their names, their sections and what they hold.
"""

from __future__ import annotations

import re

from schedmate.agent.configs.trees import class_keys
from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    begins_known,
    best_candidate,
    is_known,
    pattern_of,
    rules,
    says_nothing,
    source_bonus,
    text_of,
    word_list,
)
from schedmate.agent.fields.dataset_names import (
    class_dataset,
    dataset_name,
    dataset_of_path,
    is_path,
    written_path,
)
from schedmate.agent.fields.settings import Setting, normal_name, settings_named
from schedmate.agent.values import Origin

_TASKS = ("task", "taskname", "tasknames")
_TASK_WORDS = (
    r"classif|segment|detect|generat|regress|train|lm$|language|translat|eval|caption|predict|"
    r"recogn|transcri|forecast|imput|anomaly|tuning|sft|dpo|^(seq2seq|ner|qa|asr|tts|vqa|nli|mlm|clm|fit)$"
)


def datasets_from_settings(settings: list[Setting], evaluates: bool = False) -> list[Candidate]:
    """Datasets that a setting names, for training or (`evaluates`) for validation."""
    out: list[Candidate] = []
    trained = {found.data for found in datasets_from_settings(settings)} if evaluates else set()
    read = {setting.owner.removeprefix("./") for setting in settings if setting.kind == "config"}
    keys = {setting.key for setting in settings}
    simulated = not keys.isdisjoint(("numenvs", "numactors"))
    tasks_of_code = "userdir" in keys or keys >= {"arch", "criterion"}  # as fairseq has them
    main = {_whole_name(setting) for setting in settings if setting.explicit} & read
    for rank, setting in (
        validation_settings(settings) if evaluates else training_settings(settings)
    ):
        text = _text_of_data(setting, rank)
        if text is None or text.removeprefix("./") in read:
            continue
        last = setting.path[-1].lower()
        place = last.endswith(("dir", "path", "root", "file")) and not HUB_ID.fullmatch(text)
        name = dataset_name(text, path=is_path(text) or place)
        if tasks_of_code and setting.key in _TASKS:
            continue
        if name is None and setting.explicit and rank < 8 and text.isalpha() and text.istitle():
            name = text  # `--dataset=Video` of this launch
        as_written = name is None and (is_path(text) or place or "/" in text)
        if as_written:
            name = written_path(text)
        if name is None or _SPLITS.fullmatch(name):
            continue
        if setting.key in ("task", "taskname") and re.search(_TASK_WORDS, name, re.IGNORECASE):
            continue
        if not is_known(name, "datasets") and (
            re.search("conf|cfg", setting.key)
            or (placed_by_section(setting) and is_path(text) and is_known(name, "models"))
        ):
            continue
        unnamed = is_path(text) and dataset_of_path(_name_tail(text)) is None
        other = name not in trained and is_known(name, "datasets")
        if not as_written and evaluates and unnamed and not other:
            continue  # `val.csv` beside `train.csv`: what it is of is the training set's name
        name = _with_config_name(settings, setting, name)
        origin = setting.value.origin
        score = _setting_score(setting, name, rank, as_written)
        if main and setting.kind == "config" and _is_apart(setting.owner, main):
            score += prior.dataset_setting["part of its own"]
        if simulated and setting.explicit and setting.key in _TASKS:
            score += prior.dataset_setting["task of a simulator"]
        out.append(Candidate(name, origin, score, rule="setting"))
    return out


def _is_apart(config: str, main: set[str]) -> bool:
    """Whether a configuration lies in another folder of the repository than the launched ones."""
    top = config.removeprefix("./").partition("/")
    return bool(top[1]) and all(top[0] != other.partition("/")[0] for other in main)


def _whole_name(setting: Setting) -> str:
    text = setting.value.data
    return text.removeprefix("./") if isinstance(text, str) else ""


_OTHER_SECTION = pattern_of("dataset_settings.other_section")
_SPLITS = re.compile(r"((train|val|test|valid|trainval|(no)?minival|dummy)(,|$))+", re.IGNORECASE)
_NO_DATA = re.compile(r"\.(py|sh|jpe?g|png|gif|webp|mp4|avi)$|^corpora\.\w+$", re.IGNORECASE)
"""What describes or prepares data, one sample, and what spaCy calls a section of its own."""
_DESCRIBES = re.compile(r"reader(path)?$|^(reverb|noise|rirs?)")
"""Settings for what reads or disturbs the data."""


def _text_of_data(setting: Setting, rank: int) -> str | None:
    """What a setting says, as far as it may be of the data: by its section, form and name."""
    data = setting.value.data
    if any(map(_OTHER_SECTION.search, setting.path[:-1])) or _DESCRIBES.search(setting.key):
        return None
    if not isinstance(data, str | list | tuple) or (
        setting.kind == "globals"
        and not isinstance(data, str)
        and not (rank < 32 and all(isinstance(v.data, str) for v in data))
    ):
        return None
    text = text_of(setting.value)
    if text is None or _NO_DATA.search(text):
        return None
    if setting.kind == "choices" and (says_nothing(_name_tail(text)) or setting.key == "train"):
        return None  # `audio/default`: a file of the configuration's own
    # `--dataset_name dataset-name`: to be replaced
    return None if normal_name(text) == setting.key else text


_BARE_PLACE = re.compile(r"(?:.*/)?((?:train(?:ing)?[-_]?)?(?:data|datasets?|images))/*")
_OWN_PLACE = re.compile(r"(\.{0,2}/)*[\w-]+/*")
_AT_HOME = re.compile(r"/(home|Users)/[^/]+/")


def bare_place(settings: list[Setting]) -> Candidate | None:
    """A folder for the data that is called after nothing else, where nothing else is known.

    The launch gives it, or somebody keeps it at home.
    """
    for _, setting in training_settings(settings):
        text = setting.value.text or ""
        bare = _BARE_PLACE.fullmatch(text)
        if bare is None or len(setting.path) > 1 or setting.kind == "globals":
            continue
        if (setting.explicit and _OWN_PLACE.fullmatch(text)) or _AT_HOME.match(text):
            score, note = prior.dataset["folder"], "a folder as written"
            return Candidate(bare[1], setting.value.origin, score, note, "folder")
    return None


def _setting_score(setting: Setting, name: str, rank: int, as_written: bool) -> float:
    """How well a setting tells the dataset; `rank` is its name's place in names.yaml."""
    origin, text = setting.value.origin, text_of(setting.value) or ""
    is_known_dataset = is_known(name, "datasets")
    score = prior.dataset_setting["named"] + source_bonus(origin) * prior.dataset_setting["source"]
    score += prior.dataset_setting["rank"] * rank
    if is_path(text):
        known_place = is_known_dataset and setting.explicit
        score += prior.dataset_setting["known path" if known_place else "path"]
        if is_known(name, "models") and not is_known_dataset:
            score += prior.dataset_setting["path of a model"]
    elif setting.explicit:
        # what this launch says over what the code makes of other defaults, or builds it from
        score += prior.dataset_setting["word by its first names" if rank < 4 else "word"]
    if as_written:
        score += prior.dataset_setting["as written"]
    elif says_nothing(name) and not is_known_dataset:
        score += prior.dataset_setting["says nothing"]
    if setting.key.startswith("test"):
        score += prior.dataset_setting["test"]
    if setting.key in _TASKS and not is_known_dataset:
        score += prior.dataset_setting["task"]
    if setting.key.endswith("type"):
        score += prior.dataset_setting["type"]
    if setting.kind == "globals":
        score += prior.dataset_setting["globals"]
    if origin is not None and origin.source == "library":
        score += prior.dataset_setting["library"]
    if setting.unread:
        score += prior.dataset_setting["unread"]
    return score


def _name_tail(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1]


def _with_config_name(settings: list[Setting], setting: Setting, name: str) -> str:
    """`dataset_name` with its `dataset_config_name`, as Hugging Face scripts keep them."""
    key = setting.path[-1]
    if key not in ("dataset_name", "dataset"):
        return name
    if name in word_list("recorded_by"):
        for other in settings:
            if other.path[:-1] == setting.path[:-1] and other.path[-1] in ("env", "env_name"):
                task = text_of(other.value)
                return f"{task}-{name}" if task else name
    for other in settings:
        if other.path[:-1] == setting.path[:-1] and other.path[-1] in (
            f"{key}_config_name", f"{key}_config", "dataset_config_name", "dataset_config",
        ):  # fmt: skip
            subset = other.value.data
            if isinstance(subset, str) and subset and not is_path(subset):
                return f"{name}/{subset}"
    return name


# Which settings tell the data: by their names, their sections and what they hold.


HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
"""`owner/name`, as hubs have them."""
_DATA_KEY = pattern_of("dataset_settings.data_key")
_EVAL_KEY = pattern_of("dataset_settings.eval_key")
_NOT_DATA_KEY = pattern_of("dataset_settings.not_data_key")
_NOT_TRAIN_KEY = pattern_of("dataset_settings.not_train_key")


def training_settings(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """Settings that tell the training data, by their name or what it looks like, with its rank."""
    usual = settings_named(settings, rules("names")["dataset"])
    return [
        (rank, setting)
        for rank, setting in [*usual, *_settings_by_pattern(settings)]
        if not section_evaluates(setting)
    ]


def validation_settings(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """Settings that name the validation data, also in sections: `val_dataset: {name: ...}`."""
    return [
        *settings_named(settings, rules("names")["valid"]),
        *(
            (30, setting)
            for setting in settings
            if _EVAL_KEY.match(setting.path[-1]) and not _NOT_TRAIN_KEY.search(setting.path[-1])
        ),
        *(
            (rank, setting)
            for rank, setting in [
                *settings_named(settings, rules("names")["dataset"]),
                *(both for both in _settings_by_pattern(settings) if not _only_tests(both[1])),
            ]
            if setting.kind != "globals" and section_evaluates(setting)
        ),
        *((60, s) for s in settings if placed_by_section(s) and section_evaluates(s)),
    ]


def _only_tests(setting: Setting) -> bool:
    """Whether it stands in a section about a test, which another program may be for."""
    return any(re.fullmatch(r"test(ing)?", part, re.IGNORECASE) for part in setting.path[:-1])


def validation_place(settings: list[Setting]) -> Origin | None:
    """Where a configuration or the launch gives a place of the validation data."""
    for _, setting in validation_settings(settings):
        origin = setting.value.origin
        told = origin is not None and origin.source in ("config", *EXPLICIT)
        if told and setting.kind != "globals" and text_of(setting.value):
            return origin
    return None


def _settings_by_pattern(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """Settings that look like the training data's place without one of the usual names."""
    # alone, `train_dir` is as often where the run writes
    paired = any(re.fullmatch(r"(val|valid|validation|test|eval|dev)dir", s.key) for s in settings)
    return [
        (60, setting)
        for setting in settings
        if _is_repository(setting)
        or _holds_known(setting)
        or placed_by_section(setting)
        or (
            _DATA_KEY.match(setting.path[-1])
            and (setting.key != "traindir" or paired)
            and not (_NOT_TRAIN_KEY if setting.key.startswith("train") else _NOT_DATA_KEY).search(
                setting.path[-1]
            )
        )
    ]


def _is_repository(setting: Setting) -> bool:
    """`data: [{repo_id: owner/name}]`, `dataset: {source: {path: owner/c4}}`: one on a hub."""
    text = setting.value.data
    known = setting.key == "path" and isinstance(text, str) and HUB_ID.fullmatch(text)
    if not (known and is_known(str(text), "datasets")):
        known = None
    return (known is not None or setting.key in ("repoid", "hfrepo", "hfid", "hfname")) and any(
        re.search("data", part, re.IGNORECASE) for part in setting.path[:-1]
    )


_FOLDER_KEY = re.compile(r"[a-z]\w*_(root|dir|path|folder)$", re.IGNORECASE)


def _holds_known(setting: Setting) -> bool:
    """`libri_root: /data/LibriSpeech`: a place that a well-known dataset names."""
    key, text = setting.path[-1], setting.value.data
    if not isinstance(text, str) or not _FOLDER_KEY.fullmatch(key) or _NOT_DATA_KEY.search(key):
        return False
    name = dataset_of_path(text) if is_path(text) and not _NOT_TRAIN_KEY.search(key) else None
    return name is not None and begins_known(name)


# Datasets of a configuration's sections: one for each loader, role or dataset.


_EVAL_SECTION = pattern_of("dataset_settings.eval_section")


def section_evaluates(setting: Setting) -> bool:
    """Whether a setting stands in a section about evaluation: `data.val.name`."""
    return any(_EVAL_SECTION.search(part) for part in setting.path[:-1]) and not any(
        re.search("train", part, re.IGNORECASE) for part in setting.path[:-1]
    )


_DATA_SECTION = pattern_of("dataset_settings.data_section")
_PLACE = pattern_of("dataset_settings.place")
"""`src` of `dataset: {train: {src: data/x}}`: what it is the place of, its sections tell."""


def placed_by_section(setting: Setting) -> bool:
    """Whether a configuration's section for data says what a place is of."""
    return (
        setting.kind == "config"
        and _PLACE.fullmatch(setting.path[-1]) is not None
        and any(_DATA_SECTION.fullmatch(part) for part in setting.path[:-1])
    )


_NAMED_SECTION = re.compile(r"(train_?)?datasets", re.IGNORECASE)


_MIXTURE = re.compile(r"sources|(data(set)?_?)?mix(ture|er)", re.IGNORECASE)
"""Sections of weights, one a dataset: `sources: {dclm: 90, code: 10}`."""


_PLACE_KEY = pattern_of("dataset_settings.place_key")


def datasets_from_sections(settings: list[Setting]) -> list[Candidate]:
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
            if _NAMED_SECTION.fullmatch(parent):
                sections.setdefault(name, setting)
        if len(setting.path) > 1 and _NAMED_SECTION.fullmatch(setting.path[-2]):
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


def datasets_from_loaders(settings: list[Setting], role: str) -> Candidate | None:
    """The dataset of a config with a section per loader, as OpenMMLab's configs have.

    `role` is a pattern. The dataset class names it where people know that name, else the folder of
    its data does.
    """
    loader = re.compile(rf"^({role})(_?(dataloader|dataset|data|loader|set|\d+))?$", re.IGNORECASE)
    classes = class_keys("path", "class", "name")
    by_loader: dict[str, Setting] = {}
    for setting in settings:
        parts, key = setting.path[:-1], setting.path[-1]
        of_data = setting.kind == "config" and any("data" in part.lower() for part in parts)
        if not (of_data and any(map(loader.match, parts))):
            continue
        place = key in word_list("loader_places") or key.startswith("dataroot")
        named = key in classes and re.match(rf"dataset|{role}", parts[-1], re.IGNORECASE)
        if named or (place and key not in classes):
            by_loader.setdefault(key, setting)
    options: list[Candidate] = []
    for key, setting in by_loader.items():
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
    return best_candidate(options)


# Datasets that a configuration names by the component that makes them.
#
# `dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}`, `data: {class_path: X}`.


_COMPONENT_SECTION = pattern_of("dataset_settings.component_section")
_BUILDERS = re.compile(r"_?(data_?set|data_?module|builder|factory|data)s?$")


def datasets_from_components(settings: list[Setting]) -> list[Candidate]:
    """The component of each section for the training data, as far as its name says which data."""
    candidates = []
    for setting in settings:
        text = setting.value.data
        if len(setting.path) < 2 or not isinstance(text, str):
            continue
        if setting.path[-1] not in class_keys("path"):
            continue
        sections = [part for part in setting.path[:-1] if part not in ("init_args", "params")]
        if not sections or not _COMPONENT_SECTION.fullmatch(sections[-1]):
            continue
        last = text.rpartition(".")[2]
        camel = last[:1].isupper()
        name = class_dataset(last) if camel else dataset_name(_BUILDERS.sub("", last))
        own = name is not None and name.lower() == text.split(".")[0].lower()
        if name is not None and not own and (is_known(name, "datasets") or not camel):
            score = prior.section["known component" if is_known(name, "datasets") else "component"]
            candidates.append(Candidate(name, setting.value.origin, score))
    return candidates
