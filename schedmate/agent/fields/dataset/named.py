"""Datasets that settings name: a flag, a configuration's key."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    Setting,
    named,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.dataset.sections import placed_by_section, section_evaluates
from schedmate.agent.fields.words import (
    begins_known,
    dataset_name,
    from_path,
    is_known,
    is_path,
    says_nothing,
    written_path,
)
from schedmate.agent.values import Origin

_SOMETIMES = ("sources", "targets", "sourcenames", "targetnames", "datasources", "benchmark")
"""Settings that are often about something other than data."""
_TASKS = ("task", "taskname", "tasknames")
_NO_DATA = (".py", ".sh", ".png", ".jpg", ".jpeg", ".webp")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_TASK_WORDS = (
    r"classif|segment|detect|generat|regress|train|lm$|language|translat|eval|caption|predict|"
    r"recogn|transcri|forecast|imput|anomaly|tuning|sft|dpo|^(seq2seq|ner|qa|asr|tts|vqa|nli|mlm|clm|fit)$"
)


def from_settings(settings: list[Setting], evaluates: bool = False) -> list[Candidate]:
    """Datasets that a setting names, for training or (`evaluates`) for validation."""
    out: list[Candidate] = []
    trained = {found.data for found in from_settings(settings)} if evaluates else set()
    read = {setting.owner.removeprefix("./") for setting in settings if setting.kind == "config"}
    simulated = any(setting.key in ("numenvs", "numactors") for setting in settings)
    for rank, setting in _for_validation(settings) if evaluates else _for_training(settings):
        if any(
            re.search(
                r"optim|sched|model|net|trainer|logger|callback|wandb|hydra|metric|pipeline|infer|predict|tokenizer|colou?rs?$|"
                r"transforms?$",
                part,
                re.IGNORECASE,
            )
            for part in setting.path[:-1]
        ):
            continue
        if not isinstance(setting.value.data, str | list | tuple) or (
            setting.kind == "globals"
            and not isinstance(setting.value.data, str)
            and not (rank < 32 and all(isinstance(v.data, str) for v in setting.value.data))
        ):
            continue
        text = text_of(setting.value)
        if text is None:
            continue
        if text.endswith(_NO_DATA) or text.removeprefix("./") in read:
            continue  # what describes or prepares the data, or one picture to look at
        last = setting.path[-1].lower()
        place = last.endswith(("dir", "path", "root", "file")) and not _HUB_ID.fullmatch(text)
        name = dataset_name(text, path=is_path(text) or place)
        if setting.kind == "choices" and says_nothing(_tail(text)):
            continue  # `audio/default`: a file of the configuration's own
        as_written = name is None and (is_path(text) or place or "/" in text)
        if as_written:
            name = written_path(text)
        if name is None or re.fullmatch(
            r"(train|val|test|valid|trainval|minival|dummy)", name, re.IGNORECASE
        ):
            continue
        if setting.key in ("task", "taskname") and re.search(_TASK_WORDS, name, re.IGNORECASE):
            continue
        if not is_known(name, "datasets") and (
            setting.key in _SOMETIMES
            or (placed_by_section(setting) and is_path(text) and is_known(name, "models"))
        ):
            continue
        unnamed = is_path(text) and from_path(_tail(text)) is None
        other = name not in trained and is_known(name, "datasets")
        if not as_written and evaluates and unnamed and not other:
            continue  # `val.csv` beside `train.csv`: what it is of is the training set's name
        name = _with_config_name(settings, setting, name)
        origin = setting.value.origin
        score = _score(setting, name, rank, as_written)
        if simulated and setting.explicit and setting.key in _TASKS:
            score += 16  # the environment's name may be that of what wraps any of them
        out.append(Candidate(name, origin, score))
    return out


_BARE_PLACE = re.compile(r"(?:.*/)?((?:train(?:ing)?[-_]?)?(?:data|datasets?|images))/*")
_OWN_PLACE = re.compile(r"(\.{0,2}/)*[\w-]+/*")
_AT_HOME = re.compile(r"/(home|Users)/[^/]+/")


def bare_place(settings: list[Setting]) -> Candidate | None:
    """A folder for the data that is called after nothing else, where nothing else is known.

    The launch gives it, or somebody keeps it at home.
    """
    for _, setting in _for_training(settings):
        text = setting.value.data
        bare = _BARE_PLACE.fullmatch(text) if isinstance(text, str) else None
        if bare is None or len(setting.path) > 1 or setting.kind == "globals":
            continue
        if (setting.explicit and _OWN_PLACE.fullmatch(text)) or _AT_HOME.match(text):
            return Candidate(bare[1], setting.value.origin, 30.0, "a folder as written")
    return None


def _score(setting: Setting, name: str, rank: int, as_written: bool) -> float:
    """How well a setting tells the dataset; `rank` is its name's place in names.yaml."""
    origin, text = setting.value.origin, text_of(setting.value) or ""
    known = is_known(name, "datasets")
    score = 74.0 + source_bonus(origin) * 1.2 - 0.15 * rank
    if is_path(text):
        score -= 3 if known and setting.explicit else 8
    elif setting.explicit:
        # what this launch says over what the code makes of other defaults, or builds it from
        score += 4 if rank < 4 else 2
    if as_written:
        score -= 22
    elif says_nothing(name) and not known:
        score -= 10
    if setting.key.startswith("test"):
        score -= 5  # beside one for validation
    if setting.key in _TASKS and not known:
        score -= 10
    if setting.key.endswith("type"):
        score -= 16  # rather how the data is kept than what it is
    if setting.kind == "globals":
        score -= 8
    if origin is not None and origin.source == "library":
        score -= 25
    if setting.unread:
        score -= 12  # left over from the program that this one was made from
    return score


def _tail(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1]


_DATA_KEY = re.compile(
    r"^(\w*_)?(data|dataset|datasets|dset|corpus|manifest|filelist)(_?(dir|path|root|file|name|folder|"
    r"location|list|source|home|base|id|key|set|config|yaml|\w*pretrain|\w*finetune|train\w*)s?)*$|"
    r"^(rec|record|lmdb|csv|json|list|dir|path|file|tfrecord|img|image|text|txt|src)s?_train$|"
    r"^train(ing)?_?\w*(dumpdir|_dir|_path|_file|_folder|_root|_list|_scp|_prefix|_manifest|_files)$|"
    r"^train(ing)?_?(rec|record|lmdb|csv|json|jsonl|list|tfrecord|img|image|images|text|txt|src|input|"
    r"data|dataset|shard|prefix|set|meta|hdf5|h5|npz|parquet|pattern|glob|location|source)s?"
    r"(_?(dir|path|file|folder|root|list|name)s?)?$|"
    r"^train_?[12ab]$",
    re.IGNORECASE,
)
_EVAL_KEY = re.compile(
    r"^(val|valid|validate|validation|eval|evaluation|dev|cv)_?(rec|record|lmdb|csv|json|jsonl|list|"
    r"tfrecord|img|image|text|txt|src|input|data|dataset|shard|prefix|pref|set|hdf5|h5|npz|parquet|"
    r"pattern|glob|location|source|path|file|manifest|folder|root|scp)s?"
    r"(_?(dir|path|file|folder|root|list|name|prefix)s?)?$",
    re.IGNORECASE,
)
_NOT_DATA_KEY = re.compile(
    r"out|log|cache|save|model|num|worker|aug|loader|type|format|meta|stat|size|label|class|result|"
    r"ckpt|checkpoint|feature|parallel|backend|column|key$|field|split|mode|cls|norm|sampler|seed|"
    r"test|val|eval|dev|^cv_|tmp|temp|pred|output|run|repo|version|tag|dtype|prefix|suffix|shape|dim",
    re.IGNORECASE,
)
_NOT_TRAIN_KEY = re.compile(
    r"out|log|cache|save|model|num|result|ckpt|checkpoint|conf|cfg|label|vocab|stat|size|batch|class|"
    r"script|pred|weight|resume|time|step|epoch|tokenizer",
    re.IGNORECASE,
)


def _for_training(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """Settings that tell the training data, by their name or what it looks like, with its rank."""
    usual = named(settings, rules("names")["dataset"])
    return [
        (rank, setting)
        for rank, setting in [*usual, *_by_pattern(settings)]
        if not section_evaluates(setting)
    ]


def _for_validation(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """The same of the validation data, which also has sections: `val_dataset: {name: ...}`."""
    # alone, `eval_dir` is as often where the evaluation writes
    paired = any(setting.key in ("traindir", "datadir") for setting in settings)
    return [
        *(
            (rank, setting)
            for rank, setting in named(settings, rules("names")["valid"])
            if paired or setting.key not in ("evaldir", "testdir")
        ),
        *(
            (30, setting)
            for setting in settings
            if _EVAL_KEY.match(setting.path[-1]) and not _NOT_TRAIN_KEY.search(setting.path[-1])
        ),
        *(
            (rank, setting)
            for rank, setting in [
                *named(settings, rules("names")["dataset"]),
                *(both for both in _by_pattern(settings) if not _only_tests(both[1])),
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
    for _, setting in _for_validation(settings):
        origin = setting.value.origin
        told = origin is not None and origin.source in ("config", *EXPLICIT)
        if told and setting.kind != "globals" and text_of(setting.value):
            return origin
    return None


def _by_pattern(settings: list[Setting]) -> list[tuple[int, Setting]]:
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
    known = setting.key == "path" and isinstance(text, str) and _HUB_ID.fullmatch(text)
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
    name = from_path(text) if is_path(text) and not _NOT_TRAIN_KEY.search(key) else None
    return name is not None and begins_known(name)


_RECORDED_BY = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay",
                "human", "cloned")  # fmt: skip
"""Whose behaviour an offline data set is a record of, in D4RL's terms."""


def _with_config_name(settings: list[Setting], setting: Setting, name: str) -> str:
    """`dataset_name` with its `dataset_config_name`, as Hugging Face scripts keep them."""
    key = setting.path[-1]
    if key not in ("dataset_name", "dataset"):
        return name
    if name in _RECORDED_BY:
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
