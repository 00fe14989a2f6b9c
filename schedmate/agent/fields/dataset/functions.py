"""The functions of the repository that evaluate its model, among all that were called."""

from __future__ import annotations

import ast
import re
from collections.abc import Container

from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Site
from schedmate.agent.interp.trace import Trace

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
    r"_and_validate$|^_*(resolve|post_?process|format|decode)_|^log_validation|(^|_)init(ialize)?_eval_(model|engine)|(smoke|unit)_?test|"
    r"^_*(prepare|split|set|setup|load|read|get|copy|save|plot|show|parse|construct|collect)_(?!.*(evaluate|"
    r"load|set|data|iter|dl|ds|envs?))",
    re.IGNORECASE,
)
"""Functions that evaluate a policy's actions or a formula, check what is valid, draw samples, or
prepare what is no data."""

_MEASURES = re.compile(
    r"(^|_)(loss(es)?|acc|accs|accurac(y|ies)|metrics?|scores?|results?|err|errs|ious?|miou|f1|aucs?|auroc|"
    r"rewards?|returns?|episodes|wins?|psnr|ssim|lpips|ppls?|perplexity|bleu|rouge|cider|wer|cer|fid|kid|"
    r"precisions?|recalls?|correct|mse|mae|rmse|hits?|ndcg|mrr|kappa|dice|nll|elbo|bp[dbc]|evaluator|"
    r"pred|preds|predict(ion)?s?|logits?|outputs?|topk|top1)(_(?!dir|path|file|folder)|$|\d)|no_grad|inference_mode|dataset|"
    r"(train|net|data|valid|val|test|eval)_?(loader|set|dl|ds|iter|queue|generator)"
)
"""Names of what an evaluation goes over, does without, or comes to."""
_MODEL = re.compile(r"(^|_)(model|net|network|policy|agent|actor)$")
_ASKS = re.compile(
    r"(\w*_)?(evaluat(e|ion)|validat(e|ion)|eval|test|val|valid|infer(ence)?|predict)(_\w*)?"
)


def evaluating(trace: Trace, but: Container[str] = ()) -> Site | None:
    """Where the first function that evaluates the model is called; None if none is."""
    asked = {*trace.functions, *(classes.last(event.path) for event in trace.calls)}
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
        any(_MEASURES.search(snake(word)) for word in words)
        or any(_MODEL.search(snake(word)) for word in called)
        or any(word in asked and _ASKS.fullmatch(snake(word)) for word in called)
    )


def snake(name: str) -> str:
    """`val_loader` of `valLoader`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
