"""Whether the run validates, by what it calls and how it is set."""

from __future__ import annotations

import re
from typing import Literal

from schedmate.agent.fields.dataset import places
from schedmate.agent.fields.dataset.functions import evaluating, snake
from schedmate.agent.fields.dataset.hugging_face import hugging_face
from schedmate.agent.fields.dataset.sections import placed_by_section, section_evaluates
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.interp.objects import Call, Instance, Symbol
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin

_EVAL_METRIC = re.compile(
    r"(val|valid|validation|eval|dev)[\W_]++\w*(loss|acc|accuracy|error|f1|auc|miou|iou|map|mse|mae|"
    r"psnr|bleu|wer|perplexity|ppl|score)\w*",
    re.IGNORECASE,
)
_METRIC_LOG = (".add_scalar", ".log", ".log_metric")
_HELD_OUT = re.compile(
    r"(val|valid|validation|eval|dev)(set|data)?(size|split|ratio|fraction|frac|percent|percentage|"
    r"splitpercentage|setsize)|splitdatasetratio"
)
_SPLIT = re.compile(r"load_dataset\(\).*\['(val|valid|validation|dev)'\]$")
_TEST_SHARE = re.compile(r"(test|heldout|holdout)(size|split|ratio|fraction|frac)")
_HELD = r"val|valid|validation|validate|eval|evaluation|dev|test|testing|heldout|holdout"
_HOLDS = (
    r"(data_?)?(load(er)?|set|spec|generator|gen|iterator|queue|batcher|env(ironment)?)s?|"
    r"data|dls?|ds|iter|batches"
)
_JOINED = re.compile(rf"({_HELD})({_HOLDS})|({_HOLDS})({_HELD})")
"""Words for loaded evaluation data: `valloader`, `test` with `set`."""
_ABOUT = re.compile(
    r"conf|config|cfg|k?w?args|params|names?|type|columns?|size|len|length|transforms?"
)
_HELD_OUT_PART = re.compile(
    r"(i|idx|ids?|ind|inds|indices|index|x|y|xs|ys|mask|masks|df)_(val|valid|validation|dev)|(val|valid|validation|dev)_(i|idx|idxs|ids?|inds?|indices|index|x|y|xs|ys|"
    r"mask|df|images|labels|texts|edges|nodes|triples)",
    re.IGNORECASE,
)
"""Names of the held out part of arrays: `idx_val`, `X_val`, `val_mask`."""
_SPLIT_NAME = {"val", "valid", "validation", "dev"}
_OTHER_PART = {"train", "train_set", "train_data", "train_labeled", "test", "test_set", "test_data"}
"""Beside one of these, `valid` is a part of the data and not what is allowed."""
_SPLITS = (".random_split", ".train_test_split")
_TEST_LOADER = re.compile(r"(?<![a-z])test\w*_?(loader|dl|iter)$", re.IGNORECASE)
_TEST_SET = re.compile(r"(?<![a-z])test\w*_?(data|set|ds)$", re.IGNORECASE)
_EVAL_COUNT = re.compile(
    r"(n|num|i)?(eval|val|valid|validation|validate|evaluation)"
    r"(iters?|steps?|batches|intervals?|freq|frequency|every|everyn|everynepochs?|period|epochs?)|"
    r"(check|run)?valevery(n|nepochs?|nsteps)?|checkvaleverynepochs?"
)


_RESULT = re.compile(
    r"_?(val|valid|validation|eval|dev)_?(loss|losses|acc|accuracy|error|err|f1|auc|miou|iou|map|mse|"
    r"mae|rmse|psnr|ssim|bleu|wer|perplexity|ppl|scores?|metrics?|results?|stats|rewards?|returns?)"
    r"(_\w+)?",
    re.IGNORECASE,
)
"""Names of what an evaluation gives."""
_ASKED = re.compile(r"(validate|dovalid(ation)?|doval|runvalidation|usevalidation)")
"""Switches that are off unless the user asks for validation."""

_NEVER = re.compile(r"(test|eval|val|valid|validation)(freq|frequency|interval)")
"""How often to evaluate; -1 is never."""
_EVAL_EPISODES = re.compile(
    r"(n|num|max)?(eval|evaluation|test)n?(episodes?|rollouts|trials)|itestset"
)
_DO_EVAL = re.compile(r"(do|run|use|with)?(eval|evaluate|evaluation|val|validate|validation)")
_SWITCH = re.compile(r"(do|run|use|with)(eval|evaluate|evaluation|val|validate|validation)")
_NO_EVAL = re.compile(r"(no|skip|disable|without)(val|valid|validation|validate|eval|evaluation)")


def switched_off(settings: list[Setting]) -> bool:
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
    return normal("".join(setting.path[-2:]))


def validates(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """Where the run validates; False when it says that it does not, None when nothing shows it."""
    share = _share(settings)
    if share is False or (share is not None and share.source != "default"):
        return share
    hugging = hugging_face(trace, settings)
    if hugging is not None or share is not None:
        return share if hugging is None else hugging
    if places.nothing_given(settings) or any(map(_no_batches, trace.calls)):
        return False
    left_out = places.left_out(settings)
    # Lightning asks every data module for a validation loader; it may answer with none
    evaluation = evaluating(trace, but=("val_dataloader",) if left_out else ())
    if evaluation is not None:
        return Origin("code", evaluation.file, evaluation.line)
    if places.never(settings):
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
            or (_loaded(name) and _tried(trace, name, trace.results.get(name)))
        ):
            return Origin("code", site.file, site.line)
    found = next((event.site for event in trace.calls if _is_evaluation(trace, event)), None)
    if found is not None:
        return Origin("code", found.file, found.line)
    seen = trace.complete and any(loop.has_backward for loop in trace.loops)
    return _scheduled(settings, seen) or places.given(settings)


def _share(settings: list[Setting]) -> Origin | Literal[False] | None:
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


def _scheduled(settings: list[Setting], seen: bool) -> Origin | None:
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


def _loaded(name: str) -> bool:
    """Whether a name is that of loaded evaluation data: `val_loader`, not `valid_symbol_set`."""
    words = [word for word in re.split(r"[\W\d_]+", snake(name)) if word]
    held = [word for word in words if re.fullmatch(_HELD, word)]
    holds = [word for word in words if re.fullmatch(_HOLDS, word)]
    if words[:1] == ["valid"] and (words[1:2] != holds[:1] or words[1:] == ["envs"]):
        return False  # `valid` says of something that it is allowed
    if words[:1] == ["env"] or (words and _ABOUT.fullmatch(words[-1])):
        return False  # of the shell, or what is told of the data
    return bool(held and holds) or any(map(_JOINED.fullmatch, words))


_EVAL_ARGUMENTS = ("val_dataloaders", "validation_data", "eval_dataset", "val_dataloader",
                   "valid_loader", "val_loader", "eval_dataloader", "validation_split",
                   "validation_generator", "validation_dataset", "valid_dataset", "val_dataset",
                   "eval_set", "valid_sets", "dev_dataset", "validation_loader")  # fmt: skip


_DEFINES = re.compile(r"(^|[._])define_\w*$|flags?$", re.IGNORECASE)
"""Calls that tell what settings a program has."""


def _is_evaluation(trace: Trace, event: CallEvent) -> bool:
    """Whether a call opens, hands on or evaluates on validation data."""
    word = event.target
    return (
        event.path.endswith(("EvalCallback", "EvaluationCallback", ".evaluate_policy"))
        or bool(word and _loaded(word) and _tried(trace, word, event.result and event.result.data))
        or bool(word and _RESULT.fullmatch(word))
        or any(
            key in event.kwargs and event.kwargs[key].data not in (None, 0, 0.0)
            for key in _EVAL_ARGUMENTS
            if not _DEFINES.search(event.path)
        )
        or _logs_evaluation(event)
        or (
            event.path.endswith(_SPLITS)
            and not (event.path.endswith("_test_split") and left_unread(trace))
        )
        or any(_HELD_OUT_PART.fullmatch(part) for part in event.path.split("."))
        or any(_of_validation(value.data) for value in event.args)
        or (event.path.endswith((".evaluate", ".validate")) and event.certain)
    )


def _tried(trace: Trace, name: str, data: object) -> bool:
    """Whether held out data is not just a test set that is loaded with the rest."""
    if "test" not in name.lower():
        return True
    return not left_unread(trace) and ("load" in name.lower() or handed_on(trace, data))


def left_unread(trace: Trace) -> bool:
    """Whether the program makes loaders of test data, goes through none, reads no set."""
    loaders = [trace.results.get(name) for name in trace.assigned if _TEST_LOADER.search(name)]
    sets = [trace.results.get(name) for name in trace.assigned if _TEST_SET.search(name)]
    return (
        trace.complete
        and bool(loaders)
        and not any(handed_on(trace, data) for data in loaders)
        and all(trace.used[id(data)] <= 1 for data in sets)  # once, to its loader
    )


def handed_on(trace: Trace, data: object) -> bool:
    """Whether a result was handed to something or gone through, as far as that can be told."""
    return not isinstance(data, Call | Instance) or id(data) in trace.used


def _of_validation(data: object) -> bool:
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
