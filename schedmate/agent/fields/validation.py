"""Whether the run validates, by what it calls and how it is set.

Switches, intervals and places of the validation data; functions of the repository that evaluate its
model; the arguments of Hugging Face's trainers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from typing import Literal

from schedmate.agent.fields.candidates import pattern_of, text_of, word_list
from schedmate.agent.fields.dataset_names import is_path
from schedmate.agent.fields.dataset_settings import placed_by_section, section_evaluates
from schedmate.agent.fields.settings import Setting, normal_name
from schedmate.agent.interp.objects import Call, Instance, Site, Symbol
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import Passes
from schedmate.agent.values import Origin, Value

_EVAL_METRIC = pattern_of("validation.eval_metric")
_METRIC_LOG = (".add_scalar", ".log", ".log_metric")
_HELD_OUT = pattern_of("validation.held_out")
_SPLIT = re.compile(r"load_dataset\(\).*\['(val|valid|validation|dev)'\]$")
_TEST_SHARE = re.compile(r"(test|heldout|holdout)(size|split|ratio|fraction|frac)")
_HELD = r"val|valid|validation|validate|eval|evaluation|dev|test|testing|heldout|holdout"
_HOLDS = (
    r"(data_?)?(load(er)?|set|spec|generator|gen|iterator|queue|batcher|env(ironment)?)s?|"
    r"data|dls?|ds|iter|batches"
)
_JOINED = re.compile(rf"({_HELD})({_HOLDS})|({_HOLDS})({_HELD})")
"""Words for loaded evaluation data: `valloader`, `test` with `set`."""
_ABOUT = pattern_of("validation.about")
_HELD_OUT_PART = pattern_of("validation.held_out_part")
"""Names of the held out part of arrays: `idx_val`, `X_val`, `val_mask`."""
_SPLIT_NAME = {"val", "valid", "validation", "dev"}
_OTHER_PART = {"train", "train_set", "train_data", "train_labeled", "test", "test_set", "test_data"}
"""Beside one of these, `valid` is a part of the data and not what is allowed."""
_SPLITS = (".random_split", ".train_test_split")
_TEST_LOADER = re.compile(r"(?<![a-z])test\w*_?(loader|dl|iter)$", re.IGNORECASE)
_TEST_SET = re.compile(r"(?<![a-z])test\w*_?(data|set|ds)$", re.IGNORECASE)
_EVAL_COUNT = pattern_of("validation.eval_count")


_RESULT = pattern_of("validation.result")
"""Names of what an evaluation gives."""
_ASKED = re.compile(r"(validate|dovalid(ation)?|doval|runvalidation|usevalidation)")
"""Switches that are off unless the user asks for validation."""

_NEVER = re.compile(r"(test|eval|val|valid|validation)(freq|frequency|interval)")
"""How often to evaluate; -1 is never."""
_EVAL_EPISODES = pattern_of("validation.eval_episodes")
_DO_EVAL = re.compile(r"(do|run|use|with)?(eval|evaluate|evaluation|val|validate|validation)")
_SWITCH = re.compile(r"(do|run|use|with)(eval|evaluate|evaluation|val|validate|validation)")
_NO_EVAL = re.compile(r"(no|skip|disable|without)(val|valid|validation|validate|eval|evaluation)")


def is_switched_off(settings: list[Setting]) -> bool:
    """Whether the user set the number of evaluation batches or their interval to zero.

    `--no-val` and the like say the same, and so does an interval that is -1 by default.
    """
    if any(
        s.kind == "arguments" and s.value.data == -1 and _NEVER.fullmatch(s.key) for s in settings
    ):
        return True
    asked = [s.value.data for s in settings if s.kind != "globals" and _ASKED.fullmatch(s.key)]
    if asked and all(value is False for value in asked):
        return True
    if any(s.key == "mode" and s.value.data in ("train_only", "trainonly") for s in settings):
        return True
    return any(
        setting.explicit
        and (
            (setting.value.data is True and _NO_EVAL.fullmatch(setting.key))
            or (
                setting.value.data in (0, "0", -1, "-1")
                and not isinstance(setting.value.data, bool)
                and any(_EVAL_COUNT.fullmatch(name) for name in (setting.key, _in_section(setting)))
            )
        )
        for setting in settings
    )


def _no_batches(event: CallEvent) -> bool:
    """Whether this makes a trainer that takes no batch of the validation data."""
    limit = event.kwargs.get("limit_val_batches")
    return limit is not None and limit.data in (0, 0.0) and limit.data is not False


def _in_section(setting: Setting) -> str:
    """A setting's name with its section's: `evalsteps` of `eval.steps`."""
    return normal_name("".join(setting.path[-2:]))


def validates(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """Where the run validates; False when it says that it does not, None when nothing shows it."""
    share = _held_out_share(settings)
    if share is False or (share is not None and share.source != "default"):
        return share
    hugging = hugging_face_validates(trace, settings)
    if hugging is not None or share is not None:
        return share if hugging is None else hugging
    if is_nothing_given(settings) or any(map(_no_batches, trace.calls)):
        return False
    left_out = is_place_left_out(settings)
    # Lightning asks every data module for a validation loader; it may answer with none
    evaluation = evaluation_call(trace, but=("val_dataloader",) if left_out else ())
    if evaluation is not None:
        return Origin("code", evaluation.file, evaluation.line)
    if never_evaluates(settings):
        return False
    splits = _SPLIT_NAME & trace.assigned.keys()
    if splits and not _OTHER_PART.isdisjoint(trace.assigned):
        site = trace.assigned[min(splits)]
        return Origin("code", site.file, site.line)
    for name, site in trace.assigned.items():
        named = _RESULT.fullmatch(name) or _HELD_OUT_PART.fullmatch(name)
        if (
            named
            or name == "evaluator"
            or (_is_loaded_name(name) and _is_held_out(trace, name, trace.results.get(name)))
        ):
            return Origin("code", site.file, site.line)
    found = next((event.site for event in trace.calls if _is_evaluation(trace, event)), None)
    if found is not None:
        return Origin("code", found.file, found.line)
    seen = trace.complete and any(loop.has_backward for loop in trace.loops)
    return _evaluation_schedule(settings, seen) or given_place(settings)


def _held_out_share(settings: list[Setting]) -> Origin | Literal[False] | None:
    """The setting for a share of the training set held out; False where it is set to zero."""
    for setting in settings:
        share, origin = setting.value.data, setting.value.origin or Origin("config")
        if _TEST_SHARE.fullmatch(setting.key) and isinstance(share, float) and 0 < share < 1:
            return origin
        if _HELD_OUT.fullmatch(setting.key) and isinstance(share, int | float) and share >= 0:
            if share > 0:
                return origin
            if setting.explicit or origin.source == "config":
                return False
    return None


def _evaluation_schedule(settings: list[Setting], seen: bool) -> Origin | None:
    """The setting that says that and how often to evaluate, where no evaluation was seen.

    Where the training loop itself was `seen`, an interval may be for samples to look at.
    """
    if any(s.value.data is False and _SWITCH.fullmatch(s.key) for s in settings):
        return None
    for setting in settings:
        value, origin = setting.value.data, setting.value.origin
        if setting.kind == "globals" or origin is None:
            continue
        if not seen and placed_by_section(setting) and section_evaluates(setting):
            return origin
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        counted = whole and (origin.source == "config" or setting.explicit)
        if (
            (counted and _EVAL_COUNT.fullmatch(setting.key) and not seen)
            or (whole and _EVAL_EPISODES.fullmatch(setting.key))
            or (value is False and _NO_EVAL.fullmatch(setting.key))
            or (value is True and setting.explicit and _DO_EVAL.fullmatch(setting.key))
        ):
            return origin
    return None


def _is_loaded_name(name: str) -> bool:
    """Whether a name is that of loaded evaluation data: `val_loader`, not `valid_symbol_set`."""
    words = [word for word in re.split(r"[\W\d_]+", snake_case(name)) if word]
    loaded_words = [word for word in words if re.fullmatch(_HELD, word)]
    holds = [word for word in words if re.fullmatch(_HOLDS, word)]
    if words[:1] == ["valid"] and (words[1:2] != holds[:1] or words[1:] == ["envs"]):
        return False  # `valid` says of something that it is allowed
    if words[:1] == ["env"] or (words and _ABOUT.fullmatch(words[-1])):
        return False  # of the shell, or what is told of the data
    return bool(loaded_words and holds) or any(map(_JOINED.fullmatch, words))


_DEFINES = re.compile(r"(^|[._])define_\w*$|flags?$", re.IGNORECASE)
"""Calls that tell what settings a program has."""


def _is_evaluation(trace: Trace, event: CallEvent) -> bool:
    """Whether a call opens, hands on or evaluates on validation data."""
    word = event.target
    return (
        event.path.endswith(("EvalCallback", "EvaluationCallback", ".evaluate_policy"))
        or bool(
            word
            and _is_loaded_name(word)
            and _is_held_out(trace, word, event.result and event.result.data)
        )
        or bool(word and _RESULT.fullmatch(word))
        or any(
            key in event.kwargs and event.kwargs[key].data not in (None, 0, 0.0)
            for key in word_list("evaluation_arguments")
            if not _DEFINES.search(event.path)
        )
        or _logs_evaluation(event)
        or (
            event.path.endswith(_SPLITS)
            and not (event.path.endswith("_test_split") and is_test_data_unread(trace))
        )
        or any(_HELD_OUT_PART.fullmatch(part) for part in event.path.split("."))
        or any(_is_validation_split(value.data) for value in event.args)
        or (event.path.endswith((".evaluate", ".validate")) and event.certain)
    )


def _is_held_out(trace: Trace, name: str, data: object) -> bool:
    """Whether held out data is not just a test set that is loaded with the rest."""
    if "test" not in name.lower():
        return True
    return not is_test_data_unread(trace) and ("load" in name.lower() or is_handed_on(trace, data))


def is_test_data_unread(trace: Trace) -> bool:
    """Whether the program makes loaders of test data, goes through none, reads no set."""
    loaders = [trace.results.get(name) for name in trace.assigned if _TEST_LOADER.search(name)]
    sets = [trace.results.get(name) for name in trace.assigned if _TEST_SET.search(name)]
    return (
        trace.complete
        and bool(loaders)
        and not any(is_handed_on(trace, data) for data in loaders)
        and all(trace.used[id(data)] <= 1 for data in sets)  # once, to its loader
    )


def is_handed_on(trace: Trace, data: object) -> bool:
    """Whether a result was handed to something or gone through, as far as that can be told."""
    return not isinstance(data, Call | Instance) or id(data) in trace.used


def _is_validation_split(data: object) -> bool:
    """Whether this is the validation split of a loaded dataset, or a count over it."""
    held = data.data if isinstance(data, Passes) else data
    return isinstance(held, Symbol) and _SPLIT.search(held.path) is not None


def _logs_evaluation(event: CallEvent) -> bool:
    """Whether a logger is told a metric: `add_scalar("val/loss", x)`, `log({"val_loss": x})`."""
    if not event.path.endswith(_METRIC_LOG) or not event.args:
        return False
    first = event.args[0].data
    names = list(first) if isinstance(first, dict) else [first]
    return any(isinstance(name, str) and _EVAL_METRIC.fullmatch(name) for name in names)


# What settings say of the validation data: a place given, left open, an empty list, never.


_DATA_PLACE = re.compile(r"(val|valid|validation|eval)(data(set)?(dir|path|root|folder|file)?)")
"""Settings for the validation data's place, and how what follows is named for training."""
_PLACE_SWITCH = re.compile(r"(do|run|use|with)?(eval|evaluate|evaluation|val|validate|validation)")
_VALID_WORD = re.compile(r"validation|valid|val|eval|dev|predict")
_EVAL_INTERVAL = pattern_of("validation.eval_interval")
_EVAL_LIST = pattern_of("validation.eval_list")


def is_place_left_out(settings: list[Setting]) -> bool:
    """Whether the place of the validation data was left open beside that of the training data."""
    places = {s.key: s.value.data for s in settings if s.kind != "globals"}
    pairs = [
        (places[f"train{end[2]}"], data)
        for key, data in places.items()
        if (end := _DATA_PLACE.fullmatch(key)) and f"train{end[2]}" in places
    ]
    return bool(pairs) and all(train is not None and data is None for train, data in pairs)


def is_nothing_given(settings: list[Setting]) -> bool:
    """Whether the list of what to evaluate on is there and empty: `eval_datasets = []`."""
    lists = [s.value.data for s in settings if s.kind != "globals" and _EVAL_LIST.fullmatch(s.key)]
    return bool(lists) and all(value == [] for value in lists)


def never_evaluates(settings: list[Setting]) -> bool:
    """Whether the interval between evaluations is zero: `eval_interval = 0`."""
    intervals = [s for s in settings if s.kind != "globals" and _EVAL_INTERVAL.fullmatch(s.key)]
    # a library's own zero, in a section of its configuration, means at the end
    return bool(intervals) and all(s.value.data == 0 and len(s.path) == 1 for s in intervals)


def given_place(settings: list[Setting]) -> Origin | None:
    """The setting for a file to validate on beside that to train on: `--train x --dev y`.

    None where a switch for evaluation is off.
    """
    if any(s.value.data is False and _PLACE_SWITCH.fullmatch(s.key) for s in settings):
        return None
    files = {
        setting.key: setting.value.origin
        for setting in settings
        if setting.kind != "globals" and isinstance(setting.value.data, str | list)
        if is_path(text_of(setting.value) or "")
    }
    for key, origin in files.items():
        word = _VALID_WORD.match(key)
        if word and f"train{key[word.end() :]}" in files:
            return origin
    return None


# The functions of the repository that evaluate its model, among all that were called.


_EVAL_CALL = pattern_of("validation.eval_call")
_CHECKS = pattern_of("validation.checks")
"""Functions such as `validate_config`: they check something, they do not evaluate."""

_NOT_EVAL_CALL = pattern_of("validation.not_eval_call")
"""Functions that evaluate a policy's actions or a formula, check what is valid, draw samples, or
prepare what is no data."""

_MEASURES = pattern_of("validation.measures")
"""Names of what an evaluation goes over, does without, or comes to."""
_MODEL = re.compile(r"(^|_)(model|net|network|policy|agent|actor)$")
_ASKS = pattern_of("validation.asks")


def evaluation_call(trace: Trace, but: Container[str] = ()) -> Site | None:
    """Where the first function that evaluates the model is called; None if none is."""
    asked = {*trace.functions, *(classes.last_part(event.path) for event in trace.calls)}
    return next(
        (
            site
            for name, called in trace.functions.items()
            if _is_named_so(name) and name not in but
            for node, site in called.items()
            if _measures(node, asked)
        ),
        None,
    )


def _is_named_so(function: str) -> bool:
    """Whether a function's name says that it evaluates the model."""
    return (
        _EVAL_CALL.match(function) is not None
        and not _CHECKS.search(function)
        and not _NOT_EVAL_CALL.search(function)
    )


def _measures(node: ast.AST, asked: Container[str]) -> bool:
    """Whether a function runs the model or measures it, or had others do so that were `asked`.

    It may check an argument (`validate_pose`), split data, save a checkpoint or switch modes.
    """
    words: set[str] = set()
    called: set[str] = set()
    for part in ast.walk(node):
        words.update(getattr(part, key, None) or "" for key in ("id", "attr", "arg"))
        if isinstance(part, ast.Call):
            called.add(getattr(part.func, "id", getattr(part.func, "attr", "")))
    if called and called <= {"eval", "train", "super"}:
        return False
    return (
        any(_MEASURES.search(snake_case(word)) for word in words)
        or any(_MODEL.search(snake_case(word)) for word in called)
        or any(word in asked and _ASKS.fullmatch(snake_case(word)) for word in called)
    )


def snake_case(name: str) -> str:
    """`val_loader` of `valLoader`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# Whether the trainers of Hugging Face evaluate, by their arguments.


def hugging_face_validates(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """The Hugging Face trainer evaluates when told to and given an evaluation dataset."""
    trainers = [e for e in trace.calls if re.search(r"(^|\.)(\w*Trainer)$", e.path)
                and e.path.startswith(("transformers.", "trl."))]  # fmt: skip
    own = [e for e in trace.calls if e.cls is not None
           and any(base.startswith(("transformers.", "trl.")) and base.endswith("Trainer")
                   for base in e.cls.external_bases())]  # fmt: skip
    if not trainers and not own:
        return _arguments_without_trainer(settings)
    event = (trainers or own)[-1]
    dataset = event.kwargs.get("eval_dataset")
    if dataset is None and any("eval_dataset" in e.kwargs for e in trainers + own):
        dataset = next(
            e.kwargs["eval_dataset"] for e in trainers + own if "eval_dataset" in e.kwargs
        )
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
    if dataset is not None and dataset.data is None:
        return False
    if not asked and (flags or dataset is None):
        return False
    return Origin("code", event.site.file, event.site.line)


def _arguments_without_trainer(settings: list[Setting]) -> Origin | bool | None:
    """What Hugging Face training arguments say where their trainer was not reached."""
    keys = {setting.key: setting for setting in reversed(settings) if setting.owner != "arguments"}
    if not {"numtrainepochs", "perdevicetrainbatchsize"} <= keys.keys():
        return None
    for name in ("doeval", "evalstrategy", "evaluationstrategy"):
        setting = keys.get(name)
        if setting is not None and setting.value.data not in (False, None, "no", "none"):
            origin = setting.value.origin
            return origin if origin is not None else Origin("config")
    return False
