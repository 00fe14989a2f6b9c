"""Models that third-party calls name."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    argument,
    by_rule,
    matching,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.model.built import LIBRARY_CLASS
from schedmate.agent.fields.model.names import AUXILIARY, MEASURING, NOT_MODEL, TARGET
from schedmate.agent.fields.model.relations import given_to_networks
from schedmate.agent.fields.model.words import model_name
from schedmate.agent.fields.words import is_known
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Call
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin

_NOT_A_MODEL_CALL = re.compile(
    r"^(torch\.(nn|optim|utils|cuda|distributed|jit|load|device|tensor|zeros|ones|randn|no_grad|"
    r"autocast|amp|compile|save|manual_seed)|numpy|os\b|sys\b|logging|json|yaml|time|random|"
    r"collections|paddle\.(nn\.\w+$|optimizer|io|static)|datetime|argparse|re\b|wandb|tensorboard|pathlib|typing|dataclasses|copy|math|"
    r"functools|itertools|shutil|accelerate|deepspeed|omegaconf|hydra|open|print|jax\.(numpy|random|"
    r"lax)|optax|tensorflow\.(constant|random|data|config|distribute|train|keras\.(Input|layers))|"
    r"keras\.(Input|layers|optimizers|callbacks|losses|models\.load_model)|ray|absl|ml_collections)"
)


def from_calls(trace: Trace) -> list[Candidate]:
    out: list[Candidate] = []
    parts = given_to_networks(trace, known=True)
    features = {event.args[0].data for event in trace.calls if _features_only(event)}
    for event in trace.calls:
        if len(event.inside) > 1 or event.cls is not None:
            continue
        known = False
        for rule in matching(event, "model"):
            known = True
            found = _named_by(event, rule)
            if found is not None:
                if event.result is not None and id(event.result.data) in parts:
                    found.score += prior.model_call["part"]
                if found.data in features:
                    found.score += prior.model_call["features"]
                found.origin = found.origin or _site(event)
                out.append(found)
                break
        keras = event.path in ("keras.Model", "keras.models.Model", "keras.Sequential",
                               "keras.models.Sequential")  # fmt: skip
        if (
            not known
            and (keras or TARGET.match(event.target))
            and not AUXILIARY.search(event.target)
        ):
            generic = _by_output(event, trace) or _generic(event)
            if generic is not None:
                out.extend(by_rule("nameless network", [generic]))
    return out


def _by_output(event: CallEvent, trace: Trace) -> Candidate | None:
    """`Model(inputs, resnet(inputs))` by the function of a known network that made its output."""
    value = event.kwargs.get("outputs") or (event.args[1] if len(event.args) > 1 else None)
    if value is None or not isinstance(value.data, Call) or event.path.endswith("Sequential"):
        return None
    for made in trace.calls:
        if made.result is not None and made.result.data is value.data:
            if made.function != event.function and is_known(made.function, "models"):
                note = "the function that builds it"
                score = prior.nameless_network["function"]
                score += 0 if event.certain else prior.nameless_network["unsure"]
                return Candidate(made.function, _site(made), score, note)
            return None
    return None


_TEXT_ENCODER = re.compile(r"(CLIPText|T5Encoder|TextEncoder)\w*\.from_pretrained$")
_KIND = re.compile(
    r"\.(?!\w*(Auto|Encoder|Text|Vision))([A-Z]\w+(For[A-Z]\w+|LMHeadModel|Model))\.from_pretrained$"
)
"""Classes of pretrained models, which say what they load where the name is not known."""

_GUIDE = re.compile(r"(Loss|Criterion|Discriminator|Conditioner|Embedder)$")
"""Networks that a pretrained one serves to teach or to condition another."""

_ENCODERS = re.compile(r"(load|get|build|make|create|init)_(\w+_)?encoders?$", re.IGNORECASE)
"""Functions that make a part of a model, or what it is taught by."""


def _named_by(event: CallEvent, rule: dict[str, Any]) -> Candidate | None:
    last = classes.last(event.path)
    if "skip" in rule and re.search(rule["skip"], event.path):
        return None
    if "only" in rule and not re.search(rule["only"], last):
        return None
    score = _call_score(event, rule)
    spec = rule["name"]
    site = event.result.origin if event.result is not None else None
    if spec == "path":
        if not last[:1].isalpha() or last in _METHODS or last.startswith("get_"):
            return None
        if "()" in event.path or (last[:1].islower() and re.search(_METHOD, event.path)):
            return None  # of an object of the library's
        return Candidate(last, site, score, None)
    if spec == "owner":
        return Candidate(classes.last(event.path.rsplit(".", 1)[0]), site, score, None)
    value = argument(event, spec)
    if rule.get("via_config") and value is not None and isinstance(value.data, Call):
        config = value.data
        value = (
            config.args[0] if config.args else config.kwargs.get("pretrained_model_name_or_path")
        )
    text = text_of(value)
    name = model_name(text) if text is not None else None
    if name is None and (kind := _KIND.search(event.path)):
        return Candidate(
            kind[2], site, min(score, prior.model_call["kind at most"]), "the class that loads it"
        )
    if name is None or NOT_MODEL.search(name):
        return None  # `AutoModel.register(LlavaConfig, ...)`
    origin = value.origin if value is not None and value.origin is not None else site
    score += prior.model_call["named"] + source_bonus(origin) * prior.model_call["source"]
    return Candidate(name, origin, score, None)


def _call_score(event: CallEvent, rule: dict[str, Any]) -> float:
    """How likely what a call names is the model, and not what serves it."""
    score = prior.model_call.sure("call", event.certain)
    if rule.get("weak"):
        score += prior.model_call["weak"]
    if AUXILIARY.search(event.target):
        score += prior.model_call["auxiliary"]
    elif (event.inside and not rule.get("weak")) or _ENCODERS.search(event.function):
        score += prior.model_call["inside"]
    if event.inside and (rule["name"] == "path" or _TEXT_ENCODER.search(event.path)):
        score += prior.model_call["path inside" if rule["name"] == "path" else "text encoder"]
    if MEASURING.search(event.site.file) or any(_GUIDE.search(name) for name in event.inside):
        score += prior.model_call["measuring"]
    if event.on_import:
        score += prior.model_call["on import"]
    return score


def _features_only(event: CallEvent) -> bool:
    """Whether a network is made to give its features, as a loss or another network needs it."""
    value = event.kwargs.get("features_only")
    named = bool(event.args) and isinstance(event.args[0].data, str)
    return named and value is not None and value.data is True


_METHOD = re.compile(r"\.[A-Z]\w*\.\w+$")
_METHODS = (
    "from_pretrained", "load", "list_models", "parameters", "named_parameters", "state_dict",
    "load_state_dict", "modules", "named_modules", "to", "cuda", "train", "eval", "apply",
)  # fmt: skip

_BUILDER = re.compile(
    r"^_*(main|run|train|fit|setup|init|__\w+__|((build|create|get|make|define|load|init|construct|"
    r"compile|prepare|setup|model)_?)+(the_)?(model|net|network|nn|keras_model)?s?|"
    r"model|net|network|call|forward|fn|wrapper|worker|do_\w+|train_\w+|run_\w+)$",
    re.IGNORECASE,
)


_STEP_OF_BUILDING = re.compile(
    r"(add|apply|attach|append|transfer|freeze|unfreeze|extend|wrap|convert|update|modify|replace|"
    r"copy|clone|restore|augment|evaluate|test|predict|save|compute|process|generate)_"
)
"""Functions that do something to a model, and are not named after it."""


def _site(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _generic(event: CallEvent) -> Candidate | None:
    """A third-party class or factory whose result goes into a variable called model."""
    if _NOT_A_MODEL_CALL.match(event.path) or event.path.startswith("?") or event.in_loop:
        return None
    last = classes.last(event.path)
    if event.path.count("()") > 0 or not last[:1].isupper():
        return None
    score = prior.nameless_network.sure("made", event.certain)
    if NOT_MODEL.search(last):
        return None
    if last in ("Sequential", "Model", "Trainer", "Module", "Functional"):
        if event.owner is not None and event.function == "__init__":
            # built by the constructor of the program's own model class
            return Candidate(
                event.owner.name,
                _site(event),
                score + prior.nameless_network["owner"],
                "the class that builds it",
            )
        given = event.kwargs.get("name")
        if given is not None and isinstance(given.data, str) and given.data not in ("model", "net"):
            # of nested models the outermost is built last
            place = event.site.line / 1e6
            return Candidate(
                given.data,
                given.origin,
                score + prior.nameless_network["own name"] + place,
                "the model's own name",
            )
        if event.function and not _BUILDER.match(event.function):
            # a function named as a class is, `DeepFM(features)`
            upper = event.function[:1].isupper()
            score += prior.nameless_network["like a class" if upper else "builder"]
            if not _STEP_OF_BUILDING.match(event.function):
                note = "the function that builds it"
                return Candidate(event.function, _site(event), score, note)
        score += prior.nameless_network["plain"]
    origin = event.result.origin if event.result is not None else None
    return Candidate(last, origin, score, "class constructed", LIBRARY_CLASS)
