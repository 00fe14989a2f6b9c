"""Datasets that settings name: a flag, a configuration's key."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, source_bonus, text_of
from schedmate.agent.fields.dataset.keys import HUB_ID, for_training, for_validation
from schedmate.agent.fields.dataset.names import dataset_name
from schedmate.agent.fields.dataset.paths import from_path, is_path, written_path
from schedmate.agent.fields.dataset.sections import placed_by_section
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.words import is_known, says_nothing

_TASKS = ("task", "taskname", "tasknames")
_TASK_WORDS = (
    r"classif|segment|detect|generat|regress|train|lm$|language|translat|eval|caption|predict|"
    r"recogn|transcri|forecast|imput|anomaly|tuning|sft|dpo|^(seq2seq|ner|qa|asr|tts|vqa|nli|mlm|clm|fit)$"
)


def from_settings(settings: list[Setting], evaluates: bool = False) -> list[Candidate]:
    """Datasets that a setting names, for training or (`evaluates`) for validation."""
    out: list[Candidate] = []
    trained = {found.data for found in from_settings(settings)} if evaluates else set()
    read = {setting.owner.removeprefix("./") for setting in settings if setting.kind == "config"}
    keys = {setting.key for setting in settings}
    simulated = not keys.isdisjoint(("numenvs", "numactors"))
    tasks_of_code = "userdir" in keys or keys >= {"arch", "criterion"}  # as fairseq has them
    main = {_whole(setting) for setting in settings if setting.explicit} & read
    for rank, setting in for_validation(settings) if evaluates else for_training(settings):
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
        unnamed = is_path(text) and from_path(_tail(text)) is None
        other = name not in trained and is_known(name, "datasets")
        if not as_written and evaluates and unnamed and not other:
            continue  # `val.csv` beside `train.csv`: what it is of is the training set's name
        name = _with_config_name(settings, setting, name)
        origin = setting.value.origin
        score = _score(setting, name, rank, as_written)
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


def _whole(setting: Setting) -> str:
    text = setting.value.data
    return text.removeprefix("./") if isinstance(text, str) else ""


_OTHER_SECTION = re.compile(
    r"optim|sched|model|net|trainer|logger|callback|wandb|hydra|metric|pipeline|infer|predict|"
    r"tokenizer|colou?rs?$|transforms?$",
    re.IGNORECASE,
)
_SPLITS = re.compile(r"((train|val|test|valid|trainval|(no)?minival|dummy)(,|$))+", re.IGNORECASE)
_NO_DATA = re.compile(r"\.(py|sh|jpe?g|png|gif|webp|mp4|avi)$|^corpora\.\w+$", re.IGNORECASE)
"""What describes or prepares data, one sample, and what spaCy calls a section of its own."""
_DESCRIBES = re.compile(r"reader(path)?$|^(reverb|noise|rirs?)")
"""Settings for what reads or disturbs the data."""


def _text_of_data(setting: Setting, rank: int) -> str | None:
    """What a setting says, as far as it may be of the data: by its section, form and name."""
    held = setting.value.data
    if any(map(_OTHER_SECTION.search, setting.path[:-1])) or _DESCRIBES.search(setting.key):
        return None
    if not isinstance(held, str | list | tuple) or (
        setting.kind == "globals"
        and not isinstance(held, str)
        and not (rank < 32 and all(isinstance(v.data, str) for v in held))
    ):
        return None
    text = text_of(setting.value)
    if text is None or _NO_DATA.search(text):
        return None
    if setting.kind == "choices" and (says_nothing(_tail(text)) or setting.key == "train"):
        return None  # `audio/default`: a file of the configuration's own
    # `--dataset_name dataset-name`: to be replaced
    return None if normal(text) == setting.key else text


_BARE_PLACE = re.compile(r"(?:.*/)?((?:train(?:ing)?[-_]?)?(?:data|datasets?|images))/*")
_OWN_PLACE = re.compile(r"(\.{0,2}/)*[\w-]+/*")
_AT_HOME = re.compile(r"/(home|Users)/[^/]+/")


def bare_place(settings: list[Setting]) -> Candidate | None:
    """A folder for the data that is called after nothing else, where nothing else is known.

    The launch gives it, or somebody keeps it at home.
    """
    for _, setting in for_training(settings):
        text = setting.value.text or ""
        bare = _BARE_PLACE.fullmatch(text)
        if bare is None or len(setting.path) > 1 or setting.kind == "globals":
            continue
        if (setting.explicit and _OWN_PLACE.fullmatch(text)) or _AT_HOME.match(text):
            return Candidate(
                bare[1],
                setting.value.origin,
                prior.dataset["folder"],
                "a folder as written",
                "folder",
            )
    return None


def _score(setting: Setting, name: str, rank: int, as_written: bool) -> float:
    """How well a setting tells the dataset; `rank` is its name's place in names.yaml."""
    origin, text = setting.value.origin, text_of(setting.value) or ""
    known = is_known(name, "datasets")
    score = prior.dataset_setting["named"] + source_bonus(origin) * prior.dataset_setting["source"]
    score += prior.dataset_setting["rank"] * rank
    if is_path(text):
        known_place = known and setting.explicit
        score += prior.dataset_setting["known path" if known_place else "path"]
        if is_known(name, "models") and not known:
            score += prior.dataset_setting["path of a model"]
    elif setting.explicit:
        # what this launch says over what the code makes of other defaults, or builds it from
        score += prior.dataset_setting["word by its first names" if rank < 4 else "word"]
    if as_written:
        score += prior.dataset_setting["as written"]
    elif says_nothing(name) and not known:
        score += prior.dataset_setting["says nothing"]
    if setting.key.startswith("test"):
        score += prior.dataset_setting["test"]
    if setting.key in _TASKS and not known:
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


def _tail(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1]


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
