"""How the networks that a program constructs are related: wholes, parts, losses, optimised ones."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.leaves import normal
from schedmate.agent.fields.model.names import AUXILIARY, BACKBONES, BUILT_WITH, PLAIN_FILE, TARGET
from schedmate.agent.fields.words import is_known
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Call, Class, Instance
from schedmate.agent.interp.trace import CallEvent, Trace

PART = re.compile(
    r"(Layer|Block|(RNN|MLP|CNN|GRU|LSTM|FF)Agent|Encoder|Decoder|Embedding|Embedder|Head|Attention|Actor|Critic|(Policy|Value|Actor|Critic|Q)Net(work)?|Policy|"
    r"Value|Temperature|\w*Function|Twin\w*|Encoding|Conv\d?d?|Unit|Stem|Neck|Pool(ing)?|WithTTA|Stack|Module|Extractor)$"
)
WRAPPER = re.compile(
    r"(Wrapper|WithLoss|WithCriterion|Bench(Train)?|Trainer|Engine|Task|Learner|Solver|System)$"
)
_LOSS = re.compile(r"(loss|criterion|objective)(_?(fn|func|function|module))?", re.IGNORECASE)
OF_LOSS = re.compile(r"(Loss|Criterion)$")
_SHELF_OF_LOSSES = re.compile(r"(^|[._])(loss(es)?|criteri(on|a))$")
_DECORATED = re.compile(r"_?(Decorat(or|ed)|Wrapp(er|ed)|Persistent)(Class|Cls)?")
NOT_NETWORK = re.compile(
    r"loss|criterion|(?<!sym)metric|stft$|spectrogram|mel_?filter|sampler|embedding$|scheduler|collat|augment|transform$|normaliz|"
    r"dropout|activation|ema$|meter|mixup|optimizer|parallel$|lora|noise_?sched|schedule|"
    r"preprocess|postprocess|norm$|tokenizer|logger|policyhead|flow$|(shift|crop|random\w*)s?aug$",
    re.IGNORECASE,
)


def owners(trace: Trace, path: str) -> set[int]:
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


def with_loss(event: CallEvent) -> bool:
    """Whether a network is built of one other and a loss: it trains that one."""
    given = [*(("", value.data) for value in event.args),
             *((key, value.data) for key, value in event.kwargs.items())]  # fmt: skip
    of_loss = [bool(_LOSS.fullmatch(key)) or _is_loss(data) for key, data in given]
    networks = [
        data
        for (_, data), loss in zip(given, of_loss, strict=True)
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
    found: set[int] = set()
    for event in trace.calls:
        if event.cls is None or not classes.is_network(event.cls):
            continue
        if known and (not is_known(event.cls.name, "models") or WRAPPER.search(event.cls.name)):
            continue
        if with_loss(event):
            continue
        for value in [*event.args, *event.kwargs.values()]:
            # a head that a network builds may be given the network itself
            itself = isinstance(value.data, Instance) and value.data.cls.name in event.inside
            if isinstance(value.data, Instance | Call) and not itself:
                found.add(id(value.data))
    return found


def wholes(trace: Trace) -> set[str]:
    """Names of networks that were given others, or what these are called, when constructed."""
    found: set[str] = set()
    for event in trace.calls:
        cls = event.cls
        if cls is None or event.inside or not classes.is_network(cls) or not event.certain:
            continue
        if PART.search(cls.name) or WRAPPER.search(cls.name) or NOT_NETWORK.search(cls.name):
            continue
        given = [value.data for value in [*event.args, *event.kwargs.values()]]
        named = any(normal(key) in BACKBONES for key in event.kwargs)
        made = any(isinstance(data, Instance) and classes.is_network(data.cls) for data in given)
        if named or made:
            found.add(class_name(cls))
    return found


def inner_classes(trace: Trace) -> set[str]:
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
    found: set[int] = set()
    for event in trace.calls:
        if not pattern.match(event.path) and not event.path.endswith(("Optimizer", ".initialize")):
            continue
        for value in [*event.args[:2], *event.kwargs.values()]:
            call = value.data
            if isinstance(call, Call) and call.callee is not None:
                found.add(id(call.callee.data))
            if isinstance(call, Instance):
                found.add(id(call))
    return found
