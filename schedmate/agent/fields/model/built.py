"""Networks of the repository that the program constructs."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import Candidate, normal, rules
from schedmate.agent.fields.model.names import AUXILIARY, MEASURING, PLAIN_FILE, TARGET
from schedmate.agent.fields.words import is_known, is_whole
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Call, Class, Instance
from schedmate.agent.interp.trace import CallEvent, Trace

_AGENT = re.compile(
    r"(\w*_)?(agent|algo|algorithm|learner|trainer|ppo|sac|dqn|ddpg|td3|a2c)s?\d*$", re.IGNORECASE
)
_WHOLE = re.compile(
    r"(\w*_)?(gan|vae|model|net|network|solver|trainer|ddpm|diffusion)\d*$", re.IGNORECASE
)
_PLAIN_MODEL = re.compile(r"(Model|Net|Network|Transformer|GAN|VAE|Agent)$")
_PART = re.compile(
    r"(Layer|Block|Encoder|Decoder|Embedding|Embedder|Head|Attention|Actor|Critic|(Policy|Value|Actor|Critic|Q)Net(work)?|Policy|"
    r"Value|Temperature|\w*Function|Twin\w*|Encoding|Conv\d?d?|Unit|Stem|Neck|Pool(ing)?|WithTTA|Stack|Module|Extractor)$"
)
_WRAPPER = re.compile(
    r"(Wrapper|WithLoss|WithCriterion|Bench(Train)?|Trainer|Engine|Task|Learner|Solver|System)$"
)
_MAKER = re.compile(r"(make|build|create|get)_(model|net|network|agent|policy)$", re.IGNORECASE)
_NOT_NETWORK = re.compile(
    r"loss|criterion|metric|stft$|spectrogram|mel_?filter|sampler|embedding$|scheduler|collat|augment|transform$|normaliz|"
    r"dropout|activation|ema$|meter|mixup|optimizer|parallel$|lora|noise_?sched|schedule|"
    r"preprocess|postprocess|norm$|tokenizer|logger|policyhead|flow$|(shift|crop|random\w*)s?aug$",
    re.IGNORECASE,
)


def built(trace: Trace) -> list[Candidate]:
    """The repository's own network classes, the outermost ones."""
    out: list[Candidate] = []
    optimised = _optimised(trace)
    parts = given_to_networks(trace)
    for event in trace.calls:
        cls = event.cls
        if cls is None or any(not _WRAPPER.search(name) for name in event.inside):
            continue
        if classes.is_training_module(cls):
            out.append(_training_module(event, cls))
            continue
        if not classes.is_network(cls):
            if event.inside or re.match(r"Random|Dummy|Mock", cls.name):
                continue
            named_after = normal(event.target) == normal(cls.name)
            whole = is_whole(cls.name) and (named_after or _WHOLE.match(event.target))
            if whole and not _is_agent(cls.name):
                origin = event.result.origin if event.result is not None else None
                score = 76.0 if event.certain else 61.0
                out.append(Candidate(cls.name, origin, score, "class constructed"))
                continue
            if _is_agent(cls.name) and (TARGET.match(event.target) or _AGENT.match(event.target)):
                origin = event.result.origin if event.result is not None else None
                score = 80.0 if event.certain else 65.0
                name = re.sub(r"_?(Trainer|Learner)$", "", cls.name)
                out.append(Candidate(name, origin, score, "class constructed"))
                continue
            if _PLAIN_MODEL.search(cls.name) and (
                TARGET.match(event.target) or _MAKER.match(event.function)
            ):
                origin = event.result.origin if event.result is not None else None
                own = cls.name.endswith("Agent") and not cls.name.startswith("Base")
                score = 67.0 if own and len(cls.name) > 6 else 57.0
                out.append(Candidate(cls.name, origin, score, "class constructed"))
            continue
        if _NOT_NETWORK.search(cls.name):
            continue
        score = _class_score(event, cls, optimised, parts) - (8 if event.inside else 0)
        origin = event.result.origin if event.result is not None else None
        out.append(Candidate(_class_name(cls), origin, score, "class constructed"))
    return out


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
    score = 72.0
    if identity in optimised:
        score += 8
    if identity in parts:
        score -= 6
    if MEASURING.search(event.site.file):
        score -= 15
    if _PART.search(cls.name):
        score -= 16
    if _WRAPPER.search(cls.name):
        score -= 12
    if any(classes.last(base) == "Layer" for base in cls.external_bases()):
        score -= 14
    if not is_known(cls.name, "models"):
        score -= 6
    if AUXILIARY.search(target) or AUXILIARY.search(cls.name):
        score -= 20
    elif TARGET.match(event.target) or re.search(r"(build|create|get|make)_?(model|net)", target):
        score += 4
    if not event.certain:
        score -= 15
    if event.in_loop:
        score -= 8
    return score


def _class_name(cls: Class) -> str:
    """The class's name; a class called Model is named by its module."""
    if cls.name.endswith("Task") and len(cls.name) > 8:
        return cls.name.removesuffix("Task")
    if cls.name.strip("_") not in ("Model", "Net", "Network"):
        return cls.name
    stem = cls.module.name.rsplit(".", 1)[-1]
    return cls.name if PLAIN_FILE.fullmatch(stem) else stem


def given_to_networks(trace: Trace, known: bool = False) -> set[int]:
    """Identities of what was given to another network's constructor, `known`: to a named one's."""
    found: set[int] = set()
    for event in trace.calls:
        if event.cls is None or not classes.is_network(event.cls):
            continue
        if known and (not is_known(event.cls.name, "models") or _WRAPPER.search(event.cls.name)):
            continue
        for value in [*event.args, *event.kwargs.values()]:
            if isinstance(value.data, Instance | Call):
                found.add(id(value.data))
    return found


def _training_module(event: CallEvent, cls: Class) -> Candidate:
    """A Lightning module: the model itself, unless it is named as a wrapper around one."""
    wrapper = re.search(
        r"^(Lit|PL|Lightning|Base)[A-Z]|(Module|Task|Wrapper|System|Trainer)$", cls.name
    )
    score = (70.0 if wrapper else 75.0) - (0 if event.certain else 15)
    name = re.sub(r"^(Lit|PL)(?=[A-Z])|(Lit|Lightning)?(Module)$", "", cls.name) or cls.name
    return Candidate(
        name, event.result.origin if event.result else None, score, "class constructed"
    )


def _optimised(trace: Trace) -> set[int]:
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
