"""`dataset_config.train` and `valid`: what is trained and validated on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    matches,
    named,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.words import class_dataset, dataset_name, from_path, is_known, is_path
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Class, Function
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value

_EVAL = re.compile(
    r"(^|[^a-z])(cv|tt|dt|val|valid|validation|eval|evaluation|test|testing|dev|heldout|holdout)"
    r"(?![a-z]*(ue|ues|uat))",
    re.IGNORECASE,
)
_EVAL_WORD = re.compile(
    r"val(id|idation)?$|^(val(?!u)|valid|test|eval|dev)|_(val|valid|test|eval|dev)(_|$)|"
    r"(val|valid|test|eval|dev)_?(set|data|dataset|loader|dl|ds|iter|split)",
    re.IGNORECASE,
)
_EVAL_CALL = re.compile(
    r"^(\w*_)?(evaluate|validate|validation|evaluation|eval_one_epoch|test_one_epoch|"
    r"val_one_epoch|estimate_loss|test|do_eval|run_eval|run_evaluation|evaluate_model|test_model|"
    r"val|valid|eval_model|val_epoch|test_epoch|valid_epoch|eval_epoch|do_validation)(_\w*)?$|^eval$",
    re.IGNORECASE,
)
_CHECKS = re.compile(
    r"_(conf(ig)?|cfg|opt|arg|param|setting|input|output|path|env|schema|file|key|name|hparam|setup|"
    r"shape|type|device|field|value|version|token|url|spec|requirement|checkpoint|state|metadata|"
    r"dataset_path|columns?|yaml|json|entry|consistency)\w*$",
    re.IGNORECASE,
)
"""Functions such as `validate_config`: they check something, they do not evaluate."""

_NOT_EVAL_CALL = re.compile(
    r"evaluate_(actions?|loss|expression|polynomial)|^_*(assert|check|ensure|is|print|should)_",
    re.IGNORECASE,
)
"""Functions that evaluate a policy's actions or a formula, or that check what is valid."""
_EVAL_METRIC = re.compile(
    r"(val|valid|validation|eval|dev)[\W_]+\w*(loss|acc|accuracy|error|f1|auc|miou|iou|map|mse|mae|"
    r"psnr|bleu|wer|perplexity|ppl|score)\w*",
    re.IGNORECASE,
)
_METRIC_LOG = (".add_scalar", ".log", ".log_metric")
OTHER_SPLIT = "another split of the training set"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HELD_OUT = re.compile(
    r"(val|valid|validation|eval|dev)(set|data)?(size|split|ratio|fraction|frac|percent|percentage|"
    r"splitpercentage|setsize)"
)
_TEST_SHARE = re.compile(r"(test|heldout|holdout)(size|split|ratio|fraction|frac)")
_SPLITS = (".random_split", ".train_test_split")
_TASK_WORDS = (
    r"classif|segment|detect|generat|regress|train|lm$|language|translat|eval|caption|predict|"
    r"recogn|forecast|imput|anomaly|tuning|sft|dpo|^(seq2seq|ner|qa|asr|tts|vqa|nli|mlm|clm|fit)$"
)
_TRAIN_WORD = re.compile(r"train", re.IGNORECASE)


@dataclass(slots=True)
class Use:
    """A dataset that the program opens."""

    candidate: Candidate
    evaluates: bool | None


def find(trace: Trace, settings: list[Setting]) -> tuple[Candidate | None, Candidate | None]:
    """The training and the validation dataset; None where the code does not say."""
    uses = [
        use
        for event in trace.calls
        for use in _uses(event)
        # a test set that is opened and never handed on is not evaluated by this run
        if use.evaluates is not True or _handed_on(trace, event)
    ]
    train = best(
        [
            *(u.candidate for u in uses if u.evaluates is not True),
            *_from_settings(settings, rules("names")["dataset"], uses),
        ]
    )
    loader = _from_loaders(settings, "train")
    if loader is not None and (train is None or loader.score >= train.score):
        train = loader
    explicit_valid = best(_from_settings(settings, rules("names")["valid"], uses))
    if explicit_valid is not None and source_bonus(explicit_valid.origin) > 3:
        explicit_valid.score += 5  # named for this launch
    valid = best([u.candidate for u in uses if u.evaluates is True])
    valid_loader = _from_loaders(settings, "val")
    if valid_loader is not None and (valid is None or valid_loader.score >= valid.score):
        valid = valid_loader
    if (
        explicit_valid is not None
        and source_bonus(explicit_valid.origin) > 3
        and valid is not None
        and train is not None
        and valid.data == train.data
    ):
        valid = explicit_valid  # the launch names another set than the one that is trained on
    if explicit_valid is not None and (valid is None or explicit_valid.score >= valid.score):
        valid = explicit_valid
    same = False if _switched_off(settings) else _validates(trace, settings)
    if train is None and valid is not None and valid is not explicit_valid:
        train = Candidate(valid.data, valid.origin, valid.score - 15, "other split")
    if same is False:
        return train, None
    if valid is None and train is not None and same is not None:
        origin = same if isinstance(same, Origin) else train.origin
        valid = Candidate(train.data, origin, train.score - 12, OTHER_SPLIT)
    if (
        valid is not None
        and train is not None
        and valid is not explicit_valid
        and any(use.evaluates is not True and use.candidate.data == valid.data for use in uses)
    ):
        # opened in both roles: another split of whatever the training set is called
        valid = Candidate(train.data, valid.origin, valid.score, OTHER_SPLIT)
    if (
        valid is not None
        and train is not None
        and valid is not explicit_valid
        and is_known(str(train.data), "datasets")
        and not is_known(str(valid.data), "datasets")
    ):
        valid = Candidate(train.data, valid.origin, valid.score, OTHER_SPLIT)
    if valid is not None and train is not None and valid.score < train.score - 18:
        # a weakly named validation file beside a well named dataset is a split of it
        valid = Candidate(train.data, valid.origin, valid.score, OTHER_SPLIT)
    return train, valid


def _handed_on(trace: Trace, event: CallEvent) -> bool:
    return event.result is None or id(event.result.data) in trace.used


# -- datasets opened -------------------------------------------------------


def _uses(event: CallEvent) -> list[Use]:
    if event.inside:
        return []
    if event.cls is not None:
        return _own_class(event)
    for rule in rules("calls")["dataset"]:
        if not matches(event, rule):
            continue
        last = classes.last(event.path)
        if "only" in rule and not re.search(rule["only"], last):
            continue
        if "only_arg" in rule:
            text = text_of(argument(event, rule["name"]))
            if text is None or not re.search(rule["only_arg"], text, re.IGNORECASE):
                continue
        found = _opened(event, rule, last)
        if found is not None:
            return found
    return []


def _opened(event: CallEvent, rule: dict[str, Any], last: str) -> list[Use] | None:
    score = 84.0 if event.certain else 68.0
    if rule.get("weak"):
        score -= 24
    spec = rule["name"]
    origin = event.result.origin if event.result is not None else None
    root = argument(event, rule["root"]) if "root" in rule else None
    name: str | None
    text: str | None = None
    if spec in ("path", "owner"):
        name = last if spec == "path" else classes.last(event.path.rsplit(".", 1)[0])
        if event.path.count("()") > 0 or not (
            name[:1].isupper() or spec == "owner" or name.startswith(("fetch_", "load_"))
        ):
            return None
        if "from_path" in rule and re.search(rule["from_path"], name):
            text = text_of(root)
            found = dataset_name(text, path=True) if text is not None else None
            if found is None:
                return None
            name, origin = found, (root.origin if root is not None else None) or origin
        name = re.sub(r"Dataset$", "", name) or name
    else:
        value = argument(event, spec)
        text = text_of(value)
        if text is None or value is None:
            return None
        name = dataset_name(text, path=bool(rule.get("path")))
        if name is None and root is not None:
            other = text_of(root)
            name = dataset_name(other, path=True) if other is not None else None
        if name is None or (rule.get("weak") and rule["call"] == "open" and not _data_file(text)):
            return None
        origin = value.origin or origin
        name = _with_subset(event, rule, name, text)
        name = name if name is not None else _generic_builder(event)
        if name is None:
            return None
    score += source_bonus(origin) / 2
    if rule.get("weak") and is_known(name, "datasets"):
        score += 8
    candidate = Candidate(name, origin, score)
    if rule.get("both"):
        return [Use(candidate, False), Use(Candidate(name, origin, score - 5), True)]
    return [Use(candidate, _role(event, rule, text))]


def _data_file(text: str) -> bool:
    return bool(re.search(r"\.(txt|json|jsonl|csv|tsv|pkl|bin|npz|npy)$", text)) and not re.search(
        r"config|log|result|metric|arg|param|vocab|label|class|state|history|requirements|readme|"
        r"hparam|setting|option|tokenizer|pred|output|loss|seed|info|meta",
        text,
        re.IGNORECASE,
    )


_BUILDERS = ("json", "csv", "text", "parquet", "imagefolder", "audiofolder", "webdataset", "arrow",
             "pandas")  # fmt: skip


def _with_subset(event: CallEvent, rule: dict[str, Any], name: str, text: str) -> str | None:
    if "subset" not in rule:
        return name
    if name.lower() in _BUILDERS:
        return None
    subset = text_of(argument(event, rule["subset"]))
    if subset and not is_path(subset) and subset not in ("default", "main") and subset != name:
        return f"{name}/{subset}"
    return name


def _generic_builder(event: CallEvent) -> str | None:
    """`load_dataset("json", data_files=...)`: named by its files."""
    files = event.kwargs.get("data_files") or event.kwargs.get("data_dir")
    if files is None:
        return None
    if isinstance(files.data, dict):
        for key in ("train", *files.data):
            text = text_of(files.data.get(key))
            if text is not None:
                return dataset_name(text, path=True)
        return None
    text = text_of(files)
    return dataset_name(text, path=True) if text is not None else None


def _role(event: CallEvent, rule: dict[str, Any], text: str | None) -> bool | None:
    """Whether this is for evaluation: by its split argument, its path, its variable or function."""
    for key in rule.get("split", []):
        value = argument(event, [key])
        if value is None:
            continue
        if isinstance(value.data, bool):
            return not value.data
        split = text_of(value)
        if split is not None:
            if _TRAIN_WORD.search(split):
                return False
            if _EVAL.search(split):
                return True
    for word in (event.target, text.rsplit("/", 1)[-1] if text else "", text or "", event.function):
        if not word:
            continue
        if _TRAIN_WORD.search(word):
            return False
        if _EVAL_WORD.search(word) or (word is not event.function and _EVAL.search(word)):
            return True
    return None


def _own_class(event: CallEvent) -> list[Use]:
    """A dataset class of the repository: named by a path or name it is given, else by its name."""
    cls = event.cls
    assert cls is not None
    if any(classes.last(base).endswith("DataLoader") for base in cls.external_bases()):
        return []
    if not classes.is_dataset(cls) and not re.search(
        r"Data(set|sets|Module|Loader|Loaders)$", cls.name
    ):
        return []
    role = _own_role(event)
    origin = event.result.origin if event.result is not None else None
    score = 66.0 if event.certain else 54.0
    out: list[Use] = []
    named_by_class = class_dataset(cls.name)
    if named_by_class is not None and (
        _names_a_model(named_by_class) or _names_a_model(re.sub(r"_?Dataset$", "", named_by_class))
    ):
        named_by_class = None
    if event.owner is not None and event.owner is not cls and event.function == "__init__":
        if classes.is_dataset(event.owner) and "Module" not in event.owner.name:
            score -= 10
    if cls.name.endswith("DataModule") or "DataModule" in cls.name:
        score -= 8
    if named_by_class is not None:
        out.append(Use(Candidate(named_by_class, origin, score), role))
    for key, value in [*zip(_parameters(cls), event.args[:4], strict=False), *event.kwargs.items()]:
        text = value.data if isinstance(value.data, str) else None
        if text is None or not _is_data_argument(key, text):
            continue
        name = dataset_name(text, path=is_path(text))
        if name is not None and not _EVAL.fullmatch(name):
            place = value.origin or origin
            # a data file says more than the class that reads it, a folder less
            bonus = 3.0 if re.search(r"\.\w{2,8}$", text) else -2.0 if named_by_class else 2.0
            if is_known(name, "datasets"):
                bonus += 6.0
            out.append(Use(Candidate(name, place, score + bonus + source_bonus(place) / 2), role))
            break
    return out


def _parameters(cls: Class) -> list[str | None]:
    """Names of the constructor's positional parameters, enough of them for any call."""
    init = cls.lookup("__init__")
    names: list[str | None] = []
    if init is not None and isinstance(init.data, Function):
        names = [a.arg for a in init.data.node.args.args[1:]]
    return [*names, *([None] * 8)]


def _names_a_model(name: str) -> bool:
    return is_known(name, "models") and not is_known(name, "datasets")


def _is_data_argument(key: str | None, text: str) -> bool:
    if key is None:
        return is_path(text)
    if (
        is_path(text)
        and re.search(r"\.\w{2,8}$", text)
        and not re.search(r"vocab|label|class", key)
    ):
        return True
    return bool(
        re.search(r"path|root|dir|data|file|folder|name|url|corpus|env", key, re.IGNORECASE)
    ) and not (
        re.search(
            r"split|mode|phase|tokenizer|model|cache|log|output|save|format|type|key|column",
            key,
            re.IGNORECASE,
        )
    )


def _own_role(event: CallEvent) -> bool | None:
    for key, value in event.kwargs.items():
        if key in ("train", "is_train", "training", "is_training") and isinstance(value.data, bool):
            return not value.data
        if key in ("split", "mode", "phase", "subset", "set", "stage", "partition", "image_set"):
            text = text_of(value)
            if text is not None:
                return False if _TRAIN_WORD.search(text) else bool(_EVAL.search(text)) or None
    for value in event.args:
        text = value.data if isinstance(value.data, str) else None
        if text in ("train", "training", "trainval"):
            return False
        if text in ("val", "valid", "validation", "test", "eval", "dev", "testing"):
            return True
    for word in (event.target, event.cls.name if event.cls else "", event.function):
        if _TRAIN_WORD.search(word):
            return False
        if _EVAL_WORD.search(word):
            return True
    paths = [v.data for v in event.args if isinstance(v.data, str) and is_path(v.data)]
    for text in paths:
        tail = text.rstrip("/").rsplit("/", 1)[-1]
        if _TRAIN_WORD.search(tail):
            return False
        if _EVAL.search(tail):
            return True
    return None


# -- datasets named by settings --------------------------------------------


def _from_settings(settings: list[Setting], names: list[str], uses: list[Use]) -> list[Candidate]:
    out: list[Candidate] = []
    for rank, setting in [*named(settings, names), *_by_pattern(settings, names)]:
        if any(
            re.search(
                r"optim|sched|model|net|trainer|logger|callback|wandb|hydra|metric",
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
        last = setting.path[-1].lower()
        place = last.endswith(("dir", "path", "root", "file")) and not _HUB_ID.fullmatch(text)
        name = dataset_name(text, path=is_path(text) or place)
        if name is None or re.fullmatch(
            r"(train|val|test|valid|trainval|minival)", name, re.IGNORECASE
        ):
            continue
        if setting.key in ("task", "taskname") and re.search(_TASK_WORDS, name, re.IGNORECASE):
            continue
        if names is rules("names")["valid"] and is_path(text) and from_path(_tail(text)) is None:
            # `val.csv` beside `train.csv`: what it is of is the training set's name
            continue
        name = _with_config_name(settings, setting, name)
        origin = setting.value.origin
        score = 74.0 + source_bonus(origin) * 1.2 - 0.15 * rank
        if is_path(text):
            score -= 8
        if setting.kind == "globals":
            score -= 8
        if origin is not None and origin.source == "library":
            score -= 25
        out.append(Candidate(name, origin, score))
    return out


def _tail(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1]


_DATA_KEY = re.compile(
    r"^(\w*_)?(data|dataset|datasets|dset|corpus|manifest|filelist)(_?(dir|path|root|file|name|folder|"
    r"location|list|source|home|base|id|key|set|config|yaml|\w*pretrain|\w*finetune|train\w*))*$|"
    r"^(rec|record|lmdb|csv|json|list|dir|path|file|tfrecord|img|image|text|txt|src)s?_train$|"
    r"^train_(rec|record|lmdb|csv|json|list|tfrecord|img|image|images|text|txt|src)s?(_(dir|path|file))?$",
    re.IGNORECASE,
)
_NOT_DATA_KEY = re.compile(
    r"out|log|cache|save|model|num|worker|aug|loader|type|format|meta|stat|size|label|class|result|"
    r"ckpt|checkpoint|feature|parallel|backend|column|key$|field|split|mode|cls|norm|sampler|seed|"
    r"test|val|eval|dev|tmp|temp|pred|output|run|repo|version|tag|dtype|prefix|suffix|shape|dim",
    re.IGNORECASE,
)


def _by_pattern(settings: list[Setting], names: list[str]) -> list[tuple[int, Setting]]:
    """Settings that look like the training data's place without one of the usual names."""
    if names is not rules("names")["dataset"]:
        return []
    return [
        (60, setting)
        for setting in settings
        if _is_repository(setting)
        or (_DATA_KEY.match(setting.path[-1]) and not _NOT_DATA_KEY.search(setting.path[-1]))
    ]


def _is_repository(setting: Setting) -> bool:
    """`data: [{repo_id: owner/name}]`: a dataset on a hub."""
    return setting.key in ("repoid", "hfrepo", "hfid", "hfname") and any(
        re.search("data", part, re.IGNORECASE) for part in setting.path[:-1]
    )


def _with_config_name(settings: list[Setting], setting: Setting, name: str) -> str:
    """`dataset_name` with its `dataset_config_name`, as Hugging Face scripts keep them."""
    key = setting.path[-1]
    if key not in ("dataset_name", "dataset"):
        return name
    for other in settings:
        if other.path[:-1] == setting.path[:-1] and other.path[-1] in (
            f"{key}_config_name", f"{key}_config", "dataset_config_name", "dataset_config",
        ):  # fmt: skip
            subset = other.value.data
            if isinstance(subset, str) and subset and not is_path(subset):
                return f"{name}/{subset}"
    return name


_LOADER_KEYS = ("type", "data_root", "ann_file", "img_dir", "root", "dataroot", "dataroot_gt",
                "dataroot_lq")  # fmt: skip


def _from_loaders(settings: list[Setting], role: str) -> Candidate | None:
    """The dataset of a config with a section per loader, as OpenMMLab's configs have.

    The dataset class names it where people know that name, else the folder of its data does.
    """
    loader = re.compile(rf"^{role}(_?(dataloader|dataset|data|loader|set))?$", re.IGNORECASE)
    found: dict[str, Setting] = {}
    for setting in settings:
        parts = setting.path[:-1]
        if (
            setting.kind == "config"
            and any(loader.match(part) for part in parts)
            and (any("data" in part for part in parts))
        ) and setting.path[-1] in _LOADER_KEYS:
            if setting.path[-1] != "type" or parts[-1].startswith(("dataset", role)):
                found.setdefault(setting.path[-1], setting)
    options: list[Candidate] = []
    for key, setting in found.items():
        text = setting.value.data
        if not isinstance(text, str):
            continue
        name = class_dataset(text) if key == "type" else dataset_name(text, path=True)
        if name is not None:
            score = 82.0 if is_known(name, "datasets") else 70.0
            if key.startswith("dataroot"):
                score = 62.0  # beside a `name`, which says more
            options.append(Candidate(name, setting.value.origin, score + (key == "data_root")))
    return best(options)


# -- whether the run validates ---------------------------------------------


_EVAL_COUNT = re.compile(
    r"n?(eval|val|valid|validation)(iters?|steps?|batches|interval|freq|every)"
)


_NO_EVAL = re.compile(r"(no|skip|disable|without)(val|valid|validation|validate|eval|evaluation)")


def _switched_off(settings: list[Setting]) -> bool:
    """Whether the user set the number of evaluation batches or their interval to zero.

    `--no-val` and the like say the same.
    """
    return any(
        setting.explicit
        and (
            (setting.value.data is True and _NO_EVAL.fullmatch(setting.key))
            or (
                setting.value.data in (0, "0")
                and not isinstance(setting.value.data, bool)
                and _EVAL_COUNT.fullmatch(setting.key)
            )
        )
        for setting in settings
    )


def _validates(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """Where the run validates; False when it says that it does not, None when nothing shows it."""
    for setting in settings:
        # a share of the training set held out for validation
        share = setting.value.data
        if _TEST_SHARE.fullmatch(setting.key) and isinstance(share, float) and 0 < share < 1:
            return setting.value.origin or Origin("config")
        if _HELD_OUT.fullmatch(setting.key) and isinstance(share, int | float) and share >= 0:
            if share == 0 and setting.value.origin is not None and setting.explicit:
                return False
            if share > 0:
                return setting.value.origin or Origin("config")
    hugging = _hugging_face(trace, settings)
    if hugging is not None:
        return hugging
    evaluation = next((site for name, site in trace.functions.items() if _evaluates(name)), None)
    if evaluation is not None:
        return Origin("code", evaluation.file, evaluation.line)
    for event in trace.calls:
        word = event.target
        if event.path.endswith(("EvalCallback", "EvaluationCallback", ".evaluate_policy")):
            return Origin("code", event.site.file, event.site.line)
        if (
            word
            and _EVAL_WORD.search(word)
            and re.search(r"load|set|data|dl|ds|iter", word, re.IGNORECASE)
        ):
            return Origin("code", event.site.file, event.site.line)
        for key in ("val_dataloaders", "validation_data", "eval_dataset", "val_dataloader",
                    "valid_loader", "val_loader", "eval_dataloader"):  # fmt: skip
            if key in event.kwargs and event.kwargs[key].data is not None:
                return Origin("code", event.site.file, event.site.line)
        if _logs_evaluation(event):
            return Origin("code", event.site.file, event.site.line)
        if event.path.endswith(_SPLITS) or (
            event.path.endswith((".evaluate", ".validate")) and event.certain
        ):
            return Origin("code", event.site.file, event.site.line)
    return None


def _evaluates(function: str) -> bool:
    """Whether a function's name says that it evaluates the model."""
    return (
        _EVAL_CALL.match(function) is not None
        and not _CHECKS.search(function)
        and not _NOT_EVAL_CALL.search(function)
    )


def _logs_evaluation(event: CallEvent) -> bool:
    """Whether a logger is told a metric: `add_scalar("val/loss", x)`, `log({"val_loss": x})`."""
    if not event.path.endswith(_METRIC_LOG) or not event.args:
        return False
    first = event.args[0].data
    names = list(first) if isinstance(first, dict) else [first]
    return any(isinstance(name, str) and _EVAL_METRIC.fullmatch(name) for name in names)


def _hugging_face(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """The Hugging Face trainer evaluates when told to and given an evaluation dataset."""
    trainers = [e for e in trace.calls if re.search(r"(^|\.)(\w*Trainer)$", e.path)
                and e.path.startswith(("transformers.", "trl."))]  # fmt: skip
    own = [e for e in trace.calls if e.cls is not None
           and any(base.startswith(("transformers.", "trl.")) and base.endswith("Trainer")
                   for base in e.cls.external_bases())]  # fmt: skip
    if not trainers and not own:
        return _arguments_without_trainer(settings)
    event = (trainers or own)[-1]
    given = event.kwargs.get("eval_dataset")
    if given is None and any("eval_dataset" in e.kwargs for e in trainers + own):
        given = next(e.kwargs["eval_dataset"] for e in trainers + own if "eval_dataset" in e.kwargs)
    flags: dict[str, Value] = {}
    for setting in settings:
        if setting.path[-1] in ("do_eval", "eval_strategy", "evaluation_strategy"):
            flags.setdefault(setting.path[-1], setting.value)
    for args_event in trace.calls:
        if args_event.path.endswith(("TrainingArguments", "Config")):
            for key in ("do_eval", "eval_strategy", "evaluation_strategy"):
                if key in args_event.kwargs:
                    flags[key] = args_event.kwargs[key]
    asked = any(
        value.data is True or (isinstance(value.data, str) and value.data not in ("no", "none"))
        for value in flags.values()
    )
    if given is not None and given.data is None:
        return False
    if not asked and (flags or given is None):
        return False
    return Origin("code", event.site.file, event.site.line)


def _arguments_without_trainer(settings: list[Setting]) -> Origin | bool | None:
    """What Hugging Face training arguments say where their trainer was not reached."""
    keys = {setting.key: setting for setting in reversed(settings) if setting.owner != "arguments"}
    if not {"numtrainepochs", "perdevicetrainbatchsize"} & keys.keys():
        return None
    for name in ("doeval", "evalstrategy", "evaluationstrategy"):
        setting = keys.get(name)
        if setting is not None and setting.value.data not in (False, None, "no", "none"):
            origin = setting.value.origin
            return origin if origin is not None else Origin("config")
    return False
