"""Networks of the repository that the program constructs."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.leaves import normal
from schedmate.agent.fields.model.names import AUXILIARY, MEASURING, NOT_MODEL, TARGET
from schedmate.agent.fields.model.relations import (
    NOT_NETWORK,
    OF_LOSS,
    PART,
    WRAPPER,
    class_name,
    given_to_networks,
    given_to_optimisers,
    owners,
    with_loss,
)
from schedmate.agent.fields.words import is_known, is_whole
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Class
from schedmate.agent.interp.trace import CallEvent, Trace

NETWORK, AROUND, LIBRARY_CLASS = "network", "around networks", "library class"
"""Rules: what is constructed is a network, a class made of some, or a library's."""
CONSTRUCTED = frozenset({NETWORK, AROUND, LIBRARY_CLASS})

_AGENT = re.compile(
    r"(\w*_)?(agent|algo|algorithm|learner|trainer|ppo|sac|dqn|ddpg|td3|a2c)s?\d*$", re.IGNORECASE
)
_WHOLE = re.compile(
    r"(\w*_)?(gan|vae|model|net|network|solver|trainer|ddpm|diffusion)\d*$", re.IGNORECASE
)
_PLAIN_MODEL = re.compile(r"(Model([A-Z]\w{0,5})?|Net|Network|Transformer|GAN|VAE|Agent)$")
_MAKER = re.compile(r"(make|build|create|get)_(model|net|network|agent|policy)$", re.IGNORECASE)
_SHELF = re.compile(r"(\w+_)?(activations?|norm(alization)?s?|loss(es)?)", re.IGNORECASE)
"""Modules that hold parts of networks."""


def built(trace: Trace) -> list[Candidate]:
    """The repository's own network classes, the outermost ones."""
    out: list[Candidate] = []
    optimised = given_to_optimisers(trace)
    parts = given_to_networks(trace)
    makers = {
        id(event.owner)
        for event in trace.calls
        if event.cls is not None and event.owner is not None and classes.is_network(event.cls)
    }
    fitted = owners(trace, r"torch\.nn\.(parameter\.)?Parameter") & owners(
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
            continue
        if not classes.is_network(cls):
            found = None if event.inside else _around_networks(event, cls, makers)
            if found is None and id(cls) in fitted and not WRAPPER.search(cls.name):
                made = event.result.origin if event.result is not None else None
                found = Candidate(
                    cls.name,
                    made,
                    prior.around_networks["of parameters"],
                    "class constructed",
                    AROUND,
                )
            if found is not None:
                out.append(found)
            continue
        if NOT_NETWORK.search(cls.name) or any(OF_LOSS.search(c.name) for c in cls.mro()[1:]):
            continue
        score = _class_score(event, cls, optimised, parts) + (
            prior.network["inside a wrapper"] if event.inside else 0
        )
        origin = event.result.origin if event.result is not None else None
        out.append(Candidate(class_name(cls), origin, score, "class constructed", NETWORK))
    return out


def _around_networks(event: CallEvent, cls: Class, makers: set[int]) -> Candidate | None:
    """A class of the repository that is no network, but the model or agent made of some.

    `makers` are the identities of classes whose methods construct networks.
    """
    if re.match(r"Random|Dummy|Mock", cls.name):
        return None
    origin = event.result.origin if event.result is not None else None
    doubt = 0 if event.certain else prior.network["unsure"]
    agent = _is_agent(cls.name)
    named_after = normal(event.target) == normal(cls.name)
    whole = is_whole(cls.name) and cls.name != "Agent"
    if not agent and whole and (named_after or _WHOLE.match(event.target)):
        return Candidate(
            cls.name, origin, prior.around_networks["whole"] + doubt, "class constructed", AROUND
        )
    if agent and (TARGET.match(event.target) or _AGENT.match(event.target)):
        name = re.sub(r"_?(Trainer|Learner)$", "", cls.name)
        return Candidate(
            name, origin, prior.around_networks["agent"] + doubt, "class constructed", AROUND
        )
    named = TARGET.match(event.target) or event.target == "m"
    if not named and not _MAKER.match(event.function):
        return None
    if id(cls) in makers and event.target == "model" and not WRAPPER.search(cls.name):
        return Candidate(
            cls.name, origin, prior.around_networks["maker"] + doubt, "class constructed", AROUND
        )
    if _PLAIN_MODEL.search(cls.name):
        own = cls.name.endswith("Agent") and not cls.name.startswith("Base")
        telling = own and len(cls.name) > 6
        score = prior.around_networks["named agent" if telling else "plain"]
        return Candidate(cls.name, origin, score, "class constructed", AROUND)
    if event.target in ("model", "net", "network") and not (
        WRAPPER.search(cls.name) or classes.is_record(cls) or classes.is_dataset(cls)
    ):
        return Candidate(
            cls.name,
            origin,
            prior.around_networks["kept as model"] + doubt,
            "class constructed",
            AROUND,
        )
    return None


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
    if WRAPPER.search(cls.name) or with_loss(event):
        score += prior.network["wrapper"]
    if cls.name.endswith("Generator"):
        score += prior.network["generator"]
    if any(classes.last(base) == "Layer" for base in cls.external_bases()):
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
    return Candidate(
        name, event.result.origin if event.result else None, score, "class constructed", NETWORK
    )
