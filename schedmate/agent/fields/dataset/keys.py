"""Which settings tell the data: by their names, their sections and what they hold."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import EXPLICIT, rules, text_of
from schedmate.agent.fields.dataset.paths import from_path, is_path
from schedmate.agent.fields.dataset.sections import placed_by_section, section_evaluates
from schedmate.agent.fields.leaves import Setting, named
from schedmate.agent.fields.words import begins_known, is_known
from schedmate.agent.values import Origin

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
"""`owner/name`, as hubs have them."""
_DATA_KEY = re.compile(
    r"^(\w*_)?(data|dataset|datasets|dset|corpus|manifest|filelist)(_?(dir|path|root|file|name|folder|"
    r"location|list|source|home|base|id|key|set|config|yaml)s?)*(_?(train\w*|\w*(pretrain|finetune)s?"
    r"(_?(dir|path|root|file|name|folder|location|list|source|home|base|id|key|set|config|yaml)s?)*))?$|"
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


def for_training(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """Settings that tell the training data, by their name or what it looks like, with its rank."""
    usual = named(settings, rules("names")["dataset"])
    return [
        (rank, setting)
        for rank, setting in [*usual, *_by_pattern(settings)]
        if not section_evaluates(setting)
    ]


def for_validation(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """The same of the validation data, which also has sections: `val_dataset: {name: ...}`."""
    return [
        *named(settings, rules("names")["valid"]),
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
    for _, setting in for_validation(settings):
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
    name = from_path(text) if is_path(text) and not _NOT_TRAIN_KEY.search(key) else None
    return name is not None and begins_known(name)
