"""Lengths that settings name: arguments, configuration files, module constants."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import rules, source_bonus
from schedmate.agent.fields.leaves import Setting, named
from schedmate.agent.fields.length.consumed import add_timed
from schedmate.agent.fields.length.counts import CLIP, FEW, End, Length, length_of, positive, whole
from schedmate.agent.units import ENVIRONMENT_STEP

_ENVIRONMENT_STEPS = frozenset(
    [
        "totaltimesteps",
        "totalenvsteps",
        "numenvsteps",
        "numtimesteps",
        "ntimesteps",
        "maxtimesteps",
        "totalframes",
        "maxframes",
        "numframes",
        "numtrainframes",
        "frames",
        "envsteps",
        "totalenvironmentsteps",
    ]
)
"""Reinforcement learning counts environment steps, whatever its loops count."""

_PARTS_OF_OTHERS = re.compile(
    r"eval|valid|test|infer|generat|profil|^val$|^env(ironment)?_?(args|kwargs|config|cfg|params?)$",
    re.IGNORECASE,
)
_OPTIM = re.compile(r"optim\w*", re.IGNORECASE)
_PARTS_NOT_LENGTH = re.compile(
    r"warm|scheduler|sched|eval|valid|test|sampl|diffusion|decay|noise|generation|infer|beta|"
    r"log|save|callback|distill|finetune_head|backbone|discriminator|ema|augment|transform",
    re.IGNORECASE,
)


def is_of_another(setting: Setting) -> bool:
    """Whether a setting's section is about something else than the length of training."""
    parents = setting.path[:-1]
    if any("sched" in part.lower() or _PARTS_OF_OTHERS.search(part) for part in parents):
        return True
    if setting.key.startswith(("maxepoch", "maxsteps", "maxiter")):
        return False
    return any(_PARTS_NOT_LENGTH.search(part) for part in parents)


def from_settings(
    settings: list[Setting], epochs: list[Length], steps: list[Length], consumed: list[Length]
) -> None:
    """Lengths that settings are named after."""
    names = rules("names")
    for rank, setting in named(settings, names["duration"]):
        if not is_of_another(setting):
            sure = prior.length_setting["named"] + prior.length["rank"] * rank
            sure += source_bonus(setting.value.origin)
            add_timed(setting.value, sure, epochs, steps, consumed)
    for target, aliases in ((epochs, names["epochs"]), (steps, names["steps"])):
        for rank, setting in named(settings, aliases):
            if not positive(setting.value):
                text = setting.value.data
                if not (isinstance(text, str) and re.fullmatch(r"\d{1,18}", text)):
                    continue
            if is_of_another(setting):
                continue
            number = setting.value.data
            optim = target is steps and any(_OPTIM.fullmatch(p) for p in setting.path[:-1])
            if optim and float(str(number)) < 100:
                continue  # of the optimiser's own search
            data = int(number) if isinstance(number, str) else whole(number)
            score = _score(setting, data, target is steps)
            if score is None:
                continue
            limit = target is steps and setting.key.startswith("max")
            end = End("limit") if limit and setting.explicit else None
            unit = ENVIRONMENT_STEP if setting.key in _ENVIRONMENT_STEPS else None
            score += prior.length["rank"] * rank
            target.append(length_of(data, setting.value.origin, score, end, unit))


def _score(setting: Setting, number: float, steps: bool) -> float | None:
    """How likely a setting under such a name is the length; None when it is something else."""
    score = prior.length_setting["named"] + source_bonus(setting.value.origin)
    score += prior.length_setting["launched"] if setting.explicit else 0
    if setting.key in _ENVIRONMENT_STEPS:
        if number < CLIP:
            return None  # the frames of a video clip
        score += prior.length_setting["environment steps"]
    if setting.kind == "globals":
        score += prior.length_setting["globals"]
    counted_up = setting.kind == "globals" and len(setting.path) > 1  # by an object, so far
    one = setting.explicit and setting.key.startswith(
        ("max", "total", "train")
    )  # a trial of one step
    if number <= 1 and ((steps and not one) or counted_up or "episode" in setting.key):
        return None
    if steps and number < FEW and not one:
        if setting.source == "default":
            return None
        score += prior.length_setting["few"]
    if "episode" in setting.key:
        score += prior.length_setting["episode"]
    return score
