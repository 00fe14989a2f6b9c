"""Networks that the program constructs, and models that its calls of libraries name.

How the networks are related (wholes, parts, losses, optimised ones) says which of them is trained.
Last, which names mean a model or something that serves it, and names read out of values and paths.
"""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    by_rule,
    is_known,
    is_whole,
    matching_rules,
    pattern_of,
    rule_argument,
    rules,
    source_bonus,
    text_of,
    word_list,
)
from schedmate.agent.fields.settings import normal_name
from schedmate.agent.interp.objects import Call, Class, Instance
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Origin

NETWORK, AROUND, LIBRARY_CLASS = "network", "around networks", "library class"
"""Rules: what is constructed is a network, a class made of some, or a library's."""
CONSTRUCTED = frozenset({NETWORK, AROUND, LIBRARY_CLASS})

_AGENT = pattern_of("model_built.agent")
_WHOLE = pattern_of("model_built.whole")
_PLAIN_MODEL = re.compile(r"(Model([A-Z]\w{0,5})?|Net|Network|Transformer|GAN|VAE|Agent)$")
_MAKER = re.compile(r"(make|build|create|get)_(model|net|network|agent|policy)$", re.IGNORECASE)
_SHELF = re.compile(r"(\w+_)?(activations?|norm(alization)?s?|loss(es)?)", re.IGNORECASE)
"""Modules that hold parts of networks."""


def built_models(trace: Trace) -> list[Candidate]:
    """The repository's own network classes, the outermost ones."""
    out: list[Candidate] = []
    optimised = given_to_optimisers(trace)
    parts = given_to_networks(trace)
    makers = {
        id(event.owner)
        for event in trace.calls
        if event.cls is not None and event.owner is not None and classes.is_network(event.cls)
    }
    fitted = owners_of_calls(trace, r"torch\.nn\.(parameter\.)?Parameter") & owners_of_calls(
        trace, r"torch\.optim\.\w+"
    )
    for event in trace.calls:
        cls = event.cls
        if cls is None or any(not WRAPPER.search(name) for name in event.inside):
            continue
        if NOT_MODEL.search(cls.name):
            continue
        if classes.is_training_module(cls):
            out.append(_training_module(event, cls))
        elif not classes.is_network(cls):
            candidate = None if event.inside else _made_of_networks(event, cls, makers)
            if candidate is None and id(cls) in fitted and not WRAPPER.search(cls.name):
                score = prior.around_networks["of parameters"]
                candidate = _constructed(event, cls.name, score, AROUND)
            out += [candidate] if candidate is not None else []
        elif not NOT_NETWORK.search(cls.name) and not any(
            OF_LOSS.search(c.name) for c in cls.mro()[1:]
        ):
            score = _class_score(event, cls, optimised, parts)
            score += prior.network["inside a wrapper"] if event.inside else 0
            out.append(_constructed(event, class_name(cls), score, NETWORK))
    return out


def _constructed(event: CallEvent, name: str, score: float, rule: str) -> Candidate:
    """The model that a call constructs."""
    origin = event.result.origin if event.result is not None else None
    return Candidate(name, origin, score, "class constructed", rule)


def _made_of_networks(event: CallEvent, cls: Class, makers: set[int]) -> Candidate | None:
    """A class of the repository that is no network, but the model or agent made of some.

    `makers` are the identities of classes whose methods construct networks.
    """
    if re.match(r"Random|Dummy|Mock", cls.name):
        return None
    name, sure = cls.name, event.certain
    agent = _is_agent(cls.name)
    named_after = normal_name(event.target) == normal_name(cls.name)
    whole = is_whole(cls.name) and cls.name != "Agent"
    named = TARGET.match(event.target) or event.target == "m" or _MAKER.match(event.function)
    wrapper = WRAPPER.search(cls.name)
    if not agent and whole and (named_after or _WHOLE.match(event.target)):
        row = "whole"
    elif agent and (TARGET.match(event.target) or _AGENT.match(event.target)):
        row, name = "agent", re.sub(r"_?(Trainer|Learner)$", "", cls.name)
    elif named and id(cls) in makers and event.target == "model" and not wrapper:
        row = "maker"
    elif named and _PLAIN_MODEL.search(cls.name):
        own = cls.name.endswith("Agent") and not cls.name.startswith("Base")
        row, sure = "named agent" if own and len(cls.name) > 6 else "plain", True
    elif event.target in ("model", "net", "network") and not (
        wrapper or classes.is_record(cls) or classes.is_dataset(cls)
    ):
        row = "kept as model"
    else:
        return None
    score = prior.around_networks[row] + (0 if sure else prior.network["unsure"])
    return _constructed(event, name, score, AROUND)


def _is_agent(name: str) -> bool:
    """Whether a class is named after a reinforcement learning algorithm: `SAC`, `PPOAgent`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).lower()
    text = re.sub(r"-?(agent|trainer|learner|algo(rithm)?|policy)$", "", text)
    return any(
        match is not None and match.end() == len(text)
        for match in [re.match(rules("vocabulary")["models"]["RL"], text)]
    )


def _class_score(event: CallEvent, cls: Class, optimised: set[int], parts: set[int]) -> float:
    """How likely a constructed network is the one that is trained."""
    identity = id(event.result.data) if event.result is not None else 0
    target = event.target or event.function
    score = prior.network["constructed"]
    if identity in optimised:
        score += prior.network["optimised"]
    if identity in parts:
        score += prior.network["part"]
    if MEASURING.search(event.site.file):
        score += prior.network["measuring"]
    if PART.search(cls.name):
        score += prior.network["named as a part"]
    if WRAPPER.search(cls.name) or is_with_loss(event):
        score += prior.network["wrapper"]
    if cls.name.endswith("Generator"):
        score += prior.network["generator"]
    if any(classes.last_part(base) == "Layer" for base in cls.external_bases()):
        score += prior.network["layer"]
    if not is_known(cls.name, "models"):
        score += prior.network["not known"]
    if AUXILIARY.search(target) or AUXILIARY.search(cls.name):
        score += prior.network["auxiliary"]
    elif TARGET.match(event.target) or re.search(r"(build|create|get|make)_?(model|net)", target):
        score += prior.network["kept as model"]
    if not event.certain:
        score += prior.network["unsure"]
    if event.in_loop:
        score += prior.network["in a loop"]
    if event.on_import or _SHELF.fullmatch(cls.module.name.rsplit(".", 1)[-1]):
        score += prior.network["on import"]
    return score


def _training_module(event: CallEvent, cls: Class) -> Candidate:
    """A Lightning module: the model itself, unless it is named as a wrapper around one."""
    wrapper = re.search(
        r"^(Lit|PL|Lightning|Base|Trainable)[A-Z]|(Module|Task|Wrapper|System|Trainer)$", cls.name
    )
    score = prior.network["training module wrapper" if wrapper else "training module"]
    score += 0 if event.certain else prior.network["unsure"]
    name = re.sub(r"^(Lit|PL|Trainable)(?=[A-Z])|(Lit|Lightning)?(Module)$", "", cls.name)
    name = name or cls.name
    if not wrapper and is_known(name, "models"):
        score += prior.network["known training module"]
    return _constructed(event, name, score, NETWORK)


# Models that third-party calls name.


_NOT_A_MODEL_CALL = pattern_of("model_built.not_a_model_call")


def models_from_calls(trace: Trace) -> list[Candidate]:
    out: list[Candidate] = []
    parts = given_to_networks(trace, known=True)
    features = {event.args[0].data for event in trace.calls if _gives_features_only(event)}
    for event in trace.calls:
        if len(event.inside) > 1 or event.cls is not None:
            continue
        is_known_call = False
        for rule in matching_rules(event, "model"):
            is_known_call = True
            candidate = _model_named_by(event, rule)
            if candidate is not None:
                if event.result is not None and id(event.result.data) in parts:
                    candidate.score += prior.model_call["part"]
                if candidate.data in features:
                    candidate.score += prior.model_call["features"]
                candidate.origin = candidate.origin or _call_origin(event)
                out.append(candidate)
                break
        keras = event.path in ("keras.Model", "keras.models.Model", "keras.Sequential",
                               "keras.models.Sequential")  # fmt: skip
        if (
            not is_known_call
            and (keras or TARGET.match(event.target))
            and not AUXILIARY.search(event.target)
        ):
            generic = _model_by_output(event, trace) or _generic_model(event)
            if generic is not None:
                out.extend(by_rule("nameless network", [generic]))
    return out


def _model_by_output(event: CallEvent, trace: Trace) -> Candidate | None:
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
                return Candidate(made.function, _call_origin(made), score, note)
            return None
    return None


_TEXT_ENCODER = re.compile(r"(CLIPText|T5Encoder|TextEncoder)\w*\.from_pretrained$")
_KIND = pattern_of("model_built.kind")
"""Classes of pretrained models, which say what they load where the name is not known."""

_GUIDE = re.compile(r"(Loss|Criterion|Discriminator|Conditioner|Embedder)$")
"""Networks that a pretrained one serves to teach or to condition another."""

_ENCODERS = re.compile(r"(load|get|build|make|create|init)_(\w+_)?encoders?$", re.IGNORECASE)
"""Functions that make a part of a model, or what it is taught by."""


def _model_named_by(event: CallEvent, rule: dict[str, Any]) -> Candidate | None:
    last = classes.last_part(event.path)
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
        return Candidate(classes.last_part(event.path.rsplit(".", 1)[0]), site, score, None)
    value = rule_argument(event, spec)
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


def _gives_features_only(event: CallEvent) -> bool:
    """Whether a network is made to give its features, as a loss or another network needs it."""
    value = event.kwargs.get("features_only")
    named = bool(event.args) and isinstance(event.args[0].data, str)
    return named and value is not None and value.data is True


_METHOD = re.compile(r"\.[A-Z]\w*\.\w+$")
_METHODS = (
    "from_pretrained", "load", "list_models", "parameters", "named_parameters", "state_dict",
    "load_state_dict", "modules", "named_modules", "to", "cuda", "train", "eval", "apply",
)  # fmt: skip

_BUILDER = pattern_of("model_built.builder")


_STEP_OF_BUILDING = pattern_of("model_built.step_of_building")
"""Functions that do something to a model, and are not named after it."""


def _call_origin(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _generic_model(event: CallEvent) -> Candidate | None:
    """A third-party class or factory whose result goes into a variable called model."""
    if _NOT_A_MODEL_CALL.match(event.path) or event.path.startswith("?") or event.in_loop:
        return None
    last = classes.last_part(event.path)
    if event.path.count("()") > 0 or not last[:1].isupper():
        return None
    score = prior.nameless_network.sure("made", event.certain)
    if NOT_MODEL.search(last):
        return None
    if last in ("Sequential", "Model", "Trainer", "Module", "Functional"):
        place = _call_origin(event)
        if event.owner is not None and event.function == "__init__":
            # built by the constructor of the program's own model class
            score += prior.nameless_network["owner"]
            return Candidate(event.owner.name, place, score, "the class that builds it")
        given = event.kwargs.get("name")
        if given is not None and given.text is not None and given.text not in ("model", "net"):
            # of nested models the outermost is built last
            score += prior.nameless_network["own name"] + event.site.line / 1e6
            return Candidate(given.text, given.origin, score, "the model's own name")
        if event.function and not _BUILDER.match(event.function):
            # a function named as a class is, `DeepFM(features)`
            upper = event.function[:1].isupper()
            score += prior.nameless_network["like a class" if upper else "builder"]
            if not _STEP_OF_BUILDING.match(event.function):
                return Candidate(event.function, place, score, "the function that builds it")
        score += prior.nameless_network["plain"]
    return _constructed(event, last, score, LIBRARY_CLASS)


# How the networks that a program constructs are related: wholes, parts, losses, optimised ones.


PART = pattern_of("model_built.part")
WRAPPER = pattern_of("model_built.wrapper")
_LOSS = re.compile(r"(loss|criterion|objective)(_?(fn|func|function|module))?", re.IGNORECASE)
OF_LOSS = re.compile(r"(Loss|Criterion)$")
_SHELF_OF_LOSSES = re.compile(r"(^|[._])(loss(es)?|criteri(on|a))$")
_DECORATED = re.compile(r"_?(Decorat(or|ed)|Wrapp(er|ed)|Persistent)(Class|Cls)?")
NOT_NETWORK = pattern_of("model_built.not_network")


def owners_of_calls(trace: Trace, path: str) -> set[int]:
    """Identities of the classes whose methods make calls of a path."""
    pattern = re.compile(path)
    return {id(e.owner) for e in trace.calls if e.owner is not None and pattern.fullmatch(e.path)}


def class_name(cls: Class) -> str:
    """The class's name; one called Model is named by its module, a decorated one by its base."""
    if _DECORATED.fullmatch(cls.name) and len(cls.mro()) > 1:
        return class_name(cls.mro()[1])
    if cls.name.endswith("Task") and len(cls.name) > 8:
        return cls.name.removesuffix("Task")
    if cls.name.strip("_") not in ("Model", "Net", "Network"):
        return cls.name
    stem = BUILT_WITH.sub("", cls.module.name.rsplit(".", 1)[-1])
    of_plain = stem.startswith("model_") and not is_known(stem, "models")  # `model_search`
    return cls.name if of_plain or PLAIN_FILE.fullmatch(stem) else stem


def is_with_loss(event: CallEvent) -> bool:
    """Whether a network is built of one other and a loss: it trains that one."""
    arguments = [*(("", value.data) for value in event.args),
             *((key, value.data) for key, value in event.kwargs.items())]  # fmt: skip
    of_loss = [bool(_LOSS.fullmatch(key)) or _is_loss(data) for key, data in arguments]
    networks = [
        data
        for (_, data), loss in zip(arguments, of_loss, strict=True)
        if not loss and isinstance(data, Instance) and classes.is_network(data.cls)
    ]
    return len(networks) == 1 and any(of_loss)


def _is_loss(data: object) -> bool:
    """Whether an object is of a class of losses, by its name or its module's."""
    if not isinstance(data, Instance):
        return False
    return bool(OF_LOSS.search(data.cls.name) or _SHELF_OF_LOSSES.search(data.cls.module.name))


def given_to_networks(trace: Trace, known: bool = False) -> set[int]:
    """Identities of what was given to another network's constructor, `known`: to a named one's."""
    identities: set[int] = set()
    for event in trace.calls:
        if event.cls is None or not classes.is_network(event.cls):
            continue
        if known and (not is_known(event.cls.name, "models") or WRAPPER.search(event.cls.name)):
            continue
        if is_with_loss(event):
            continue
        for value in [*event.args, *event.kwargs.values()]:
            # a head that a network builds may be given the network itself
            itself = isinstance(value.data, Instance) and value.data.cls.name in event.inside
            if isinstance(value.data, Instance | Call) and not itself:
                identities.add(id(value.data))
    return identities


def whole_networks(trace: Trace) -> set[str]:
    """Names of networks that were given others, or what these are called, when constructed."""
    names: set[str] = set()
    for event in trace.calls:
        cls = event.cls
        if cls is None or event.inside or not classes.is_network(cls) or not event.certain:
            continue
        if PART.search(cls.name) or WRAPPER.search(cls.name) or NOT_NETWORK.search(cls.name):
            continue
        arguments = [value.data for value in [*event.args, *event.kwargs.values()]]
        named = any(normal_name(key) in BACKBONES for key in event.kwargs)
        made = any(
            isinstance(data, Instance) and classes.is_network(data.cls) for data in arguments
        )
        if named or made:
            names.add(class_name(cls))
    return names


def inner_networks(trace: Trace) -> set[str]:
    """Names of networks constructed only by the constructor of one that is itself the model."""
    models = {
        event.cls.name
        for event in trace.calls
        if event.cls is not None and not event.inside and event.certain
        if classes.is_network(event.cls) and not classes.is_training_module(event.cls)
        if TARGET.match(event.target) and not AUXILIARY.search(event.target)
        if not WRAPPER.search(event.cls.name)
    }
    names: dict[str, bool] = {}
    for event in trace.calls:
        if event.cls is not None:
            inner = bool(event.inside) and event.inside[0] in models
            names[event.cls.name] = inner and names.get(event.cls.name, True)
    return {name for name, inner in names.items() if inner}


def given_to_optimisers(trace: Trace) -> set[int]:
    """Identities of objects whose parameters go to an optimiser."""
    pattern = re.compile(rules("calls")["optimizer"])
    identities: set[int] = set()
    for event in trace.calls:
        if not pattern.match(event.path) and not event.path.endswith(("Optimizer", ".initialize")):
            continue
        for value in [*event.args[:2], *event.kwargs.values()]:
            call = value.data
            if isinstance(call, Call) and call.callee is not None:
                identities.add(id(call.callee.data))
            if isinstance(call, Instance):
                identities.add(id(call))
    return identities


# Names of variables and files that mean the model, or something that serves it.


TARGET = pattern_of("model_built.target")
AUXILIARY = pattern_of("model_built.auxiliary")
MEASURING = pattern_of("model_built.measuring")
PLAIN_FILE = pattern_of("model_built.plain_file")

NOT_MODEL = pattern_of("model_built.not_model")
"""Names of classes that hold, make, serve or measure a model, and are none."""

BACKBONES = ("backbone", "backbonename", "encoder", "encodername")
"""What a part of a network that has a name of its own is called, normalised."""

KIND_OF_PART = pattern_of("model_built.kind_of_part")
"""What a part of a network may be, in any network."""

BUILT_WITH = re.compile(r"_(pytorch|tensorflow|keras|torch|tf2?|jax|flax|paddle)$")
"""What a file's name says of the library it uses."""


# Names of models read out of values and paths.


_PLAIN_PARTS = frozenset(
    ["model", "models", "net", "network", "base", "main", "default", "train", "finetune"]
)
"""Parts of an import path that name no model."""

_MODEL_FILE = pattern_of("model_built.model_file")


_MODEL_SHELF = pattern_of("model_built.model_shelf")
"""A folder of models, which is no owner of one."""

_FILLED_IN = pattern_of("model_built.filled_in")
"""A folder that a reader is to replace by their own."""


_NO_NAME = pattern_of("model_built.no_name")
"""What is to be filled in, a size, a rate and a sentence: `MODEL_PATH`, `[model]`, `44k`."""


def model_name(text: str) -> str | None:
    """A model's name from a setting or argument; None when it does not say."""
    text = text.strip().strip("'\"")
    if _NO_NAME.fullmatch(text) or re.search(r"\$[^/]*/*$", text):
        return None  # `/models/$NAME` too
    called = re.fullmatch(r"([A-Za-z_][\w.]*)\(.*\)", text)
    if called:
        text = called[1].rsplit(".", 1)[-1]  # an expression that makes it
    if not text or len(text) > 200 or "\n" in text or text.lower() in word_list("not_models"):
        return None
    filled_in = _FILLED_IN.sub("", text)
    if filled_in != text and is_known(filled_in, "models"):
        text = filled_in  # `path_to/Llama-2-7b`: the name below a folder to be filled in
    if re.fullmatch(
        r"(best|last|final|latest|trained|saved|my)[-_]?(model|net|ckpt|checkpoint)s?",
        text,
        re.IGNORECASE,
    ):
        return None
    if re.search(r"\.(py|sh|txt|json)$", text):
        return None
    if (
        re.match(r"^(/|\./|\.\./|~|s3://|gs://)", text)
        or text.count("/") > 1
        or text.endswith("/")
        or _MODEL_SHELF.match(text)
        or _MODEL_FILE.search(text)
    ):
        return _from_path(text)
    text = re.sub(r"[-_](test|debug|demo|experiment)$|([-_]0\.\d+){2,}$", "", text)
    if re.match(r"^(path|your|<|\$|\{)", text, re.IGNORECASE):
        return None
    if re.fullmatch(r"[a-z_]\w*(\.[A-Za-z_]\w*)+", text):
        # a module or class by its import path
        parts = [part for part in text.split(".") if part.lower() not in _PLAIN_PARTS]
        return parts[-1] if parts else text
    return text


def _from_path(text: str) -> str | None:
    """The model that a file or folder is named after: the last part that says something."""
    parts = [p for p in re.split(r"/", text) if p not in ("", ".", "..", "~")]
    if re.match(r"/?(path|your)\b", text):  # to be filled in, as with a hint of what
        parts = [p for p in parts if is_known(p, "models")]
    for part in reversed(parts):
        stem = _MODEL_FILE.sub("", part)
        cached = re.fullmatch(r"models--(.+?)--(.+)", stem)
        if cached:
            return f"{cached[1]}/{cached[2]}"  # Hugging Face's cache
        if re.match(r"(best|last|final|network)[-_]", stem) and not is_known(stem, "models"):
            continue
        if (
            stem.lower() in word_list("generic")
            or stem.lower() in word_list("not_models")
            or re.fullmatch(
                r"(checkpoint|ckpt|epoch|step|model|best|last|latest|weights?|pretrained|output|"
                r"models|checkpoints|saved|snapshots|[0-9a-f]{32,}|e\d+|v?\d+|results?|runs?|logs?|exp\d*|huggingface|hf|hub)"
                r"[-_]?(model|\d*)?",
                stem,
                re.IGNORECASE,
            )
        ):
            continue
        if re.fullmatch(r"\d+(\.\d+)?[bm]", stem, re.IGNORECASE) and len(parts) > 1:
            # a size below the folder of its family
            family = re.sub(r"[-_]hf$", "", parts[max(0, parts.index(part) - 1)])
            return f"{family}/{stem}"
        return stem
    return None
