"""Whether the run validates, by what it calls and how it is set."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import Setting, normal
from schedmate.agent.fields.dataset import places
from schedmate.agent.fields.dataset.hugging_face import hugging_face
from schedmate.agent.fields.dataset.roles import EVAL_WORD
from schedmate.agent.fields.dataset.sections import placed_by_section, section_evaluates
from schedmate.agent.interp.objects import Call, Instance, Symbol
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin

_EVAL_CALL = re.compile(
    r"^(\w*_)?(evaluate|validate|validation|evaluation|eval_one_epoch|test_one_epoch|"
    r"val_one_epoch|estimate_loss|test|do_eval|run_eval|run_evaluation|evaluate_model|test_model|"
    r"val|valid|eval_model|val_epoch|test_epoch|valid_epoch|eval_epoch|do_validation|eval_actor|eval_agent|eval_policy|evaluate_policy|eval_episodes)(_\w*)?$|^eval$",
    re.IGNORECASE,
)
_CHECKS = re.compile(
    r"_(conf(ig)?|cfg|opt|arg|param|setting|input|output|path|env|schema|file|key|name|hparam|setup|"
    r"shape|type|device|field|value|version|token|url|spec|requirement|checkpoint|state|metadata|"
    r"dataset_path|only|splits?|sampler|interval|freq|every|transforms?|augmentation|columns?|yaml|json|entry|consistency)\w*$",
    re.IGNORECASE,
)
"""Functions such as `validate_config`: they check something, they do not evaluate."""

_NOT_EVAL_CALL = re.compile(
    r"evaluate_(actions?|loss|expression|polynomial)|^_*(assert|check|ensure|is|print|should)_|"
    r"_and_validate$|^log_validation|(^|_)init(ialize)?_eval_(model|engine)",
    re.IGNORECASE,
)
"""Functions that evaluate a policy's actions or a formula, check what is valid, or draw samples."""
_EVAL_METRIC = re.compile(
    r"(val|valid|validation|eval|dev)[\W_]+\w*(loss|acc|accuracy|error|f1|auc|miou|iou|map|mse|mae|"
    r"psnr|bleu|wer|perplexity|ppl|score)\w*",
    re.IGNORECASE,
)
_METRIC_LOG = (".add_scalar", ".log", ".log_metric")
_HELD_OUT = re.compile(
    r"(val|valid|validation|eval|dev)(set|data)?(size|split|ratio|fraction|frac|percent|percentage|"
    r"splitpercentage|setsize)"
)
_SPLIT = re.compile(r"load_dataset\(\).*\['(val|valid|validation|dev)'\]$")
_TEST_SHARE = re.compile(r"(test|heldout|holdout)(size|split|ratio|fraction|frac)")
_LOADED = r"load|set|data|dl|ds|iter|env|queue|generator|gen$|batch(er|es)"
_ADJECTIVE = re.compile(rf"valid_(?!({_LOADED}))[a-z]+_?({_LOADED})|^valid_envs$", re.IGNORECASE)
"""`valid` that says of something that it is allowed."""
_HELD_OUT_PART = re.compile(
    r"(i|idx|ids?|ind|inds|indices|index|x|y|xs|ys|mask|masks|df)_(val|valid|validation|dev)|(val|valid|validation|dev)_(i|idx|idxs|ids?|inds?|indices|index|x|y|xs|ys|"
    r"mask|df|images?|labels?|texts?)",
    re.IGNORECASE,
)
"""Names of the held out part of arrays: `idx_val`, `X_val`, `val_mask`."""
_SPLIT_NAME = {"val", "valid", "validation", "dev"}
_OTHER_PART = {"train", "train_set", "train_data", "train_labeled", "test", "test_set", "test_data"}
"""Beside one of these, `valid` is a part of the data and not what is allowed."""
_SPLITS = (".random_split", ".train_test_split")
_EVAL_COUNT = re.compile(
    r"(n|num|i)?(eval|val|valid|validation|validate|evaluation)"
    r"(iters?|steps?|batches|intervals?|freq|frequency|every|everyn|everynepochs?|period|epochs?)|"
    r"(check)?valevery(n|nepochs?|nsteps)?|checkvaleverynepochs?"
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
    r"(n|num|max)?(eval|evaluation|test)(episodes|rollouts|trials)|itestset"
)
_DO_EVAL = re.compile(r"(do|run|use|with)?(eval|evaluate|evaluation|val|validate|validation)")
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
    for setting in settings:
        # a share of the training set held out for validation
        share = setting.value.data
        if _TEST_SHARE.fullmatch(setting.key) and isinstance(share, float) and 0 < share < 1:
            return setting.value.origin or Origin("config")
        if _HELD_OUT.fullmatch(setting.key) and isinstance(share, int | float) and share >= 0:
            told = setting.explicit or (
                setting.value.origin is not None and setting.value.origin.source == "config"
            )
            if share == 0 and told:
                return False
            if share > 0:
                return setting.value.origin or Origin("config")
    if places.nothing_given(settings) or any(map(_no_batches, trace.calls)):
        return False
    hugging = hugging_face(trace, settings)
    if hugging is not None:
        return hugging
    left_out = places.left_out(settings)
    evaluation = next(
        (
            site
            for name, site in trace.functions.items()
            # Lightning asks every data module for a validation loader; it may answer with none
            if _evaluates(name) and not (left_out and name == "val_dataloader")
        ),
        None,
    )
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
    seen = any(loop.has_backward for loop in trace.loops)
    return _scheduled(settings, seen) or places.given(settings)


def _scheduled(settings: list[Setting], seen: bool) -> Origin | None:
    """The setting that says that and how often to evaluate, where no evaluation was seen.

    Where the training loop itself was `seen`, an interval may be for samples to look at.
    """
    if any(setting.key == "doeval" and setting.value.data is False for setting in settings):
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
    return (
        EVAL_WORD.search(name) is not None
        and re.search(_LOADED, name, re.IGNORECASE) is not None
        and not _ADJECTIVE.search(name)
    )


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
        or event.path.endswith(_SPLITS)
        or any(_HELD_OUT_PART.fullmatch(part) for part in event.path.split("."))
        or any(_of_validation(value.data) for value in event.args)
        or (event.path.endswith((".evaluate", ".validate")) and event.certain)
    )


def _tried(trace: Trace, name: str, data: object) -> bool:
    """Whether held out data is not just a test set that is loaded with the rest."""
    only_read = "test" in name.lower() and "load" not in name.lower()
    return not only_read or handed_on(trace, data)


def handed_on(trace: Trace, data: object) -> bool:
    """Whether a result was handed to something or gone through, as far as that can be told."""
    return not isinstance(data, Call | Instance) or id(data) in trace.used


def _of_validation(data: object) -> bool:
    """Whether this is the validation split of a loaded dataset, or a count over it."""
    held = data.data if isinstance(data, Passes) else data
    return isinstance(held, Symbol) and _SPLIT.search(held.path) is not None


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
