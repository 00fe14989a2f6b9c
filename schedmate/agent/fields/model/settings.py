"""Models that settings and configuration files name."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    Setting,
    best,
    named,
    normal,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.model.words import model_name
from schedmate.agent.fields.words import is_known, is_whole
from schedmate.agent.interp import classes
from schedmate.agent.interp.trace import Trace

_FILES = ("cfg", "weights", "checkpoint", "pretrainedpath", "loadpath")
"""Settings that hold a file; only a file named after a known model names one."""

_BACKBONES = ("backbone", "backbonename", "encoder", "encodername")
_KIND_OF_PART = re.compile(r"transformer|(bi)?lstm|gru|c?rnn|cnn|mlp|attention", re.IGNORECASE)
_OF_BACKBONE = "the backbone"

_PRETRAINED = 2
"""Names up to this rank mean a pretrained model and nothing else."""

_STRONG = rules("names")["model"].index("model")
"""Names up to this rank mean the model wherever they stand on a command line."""


def from_settings(trace: Trace, settings: list[Setting], built: list[Candidate]) -> list[Candidate]:
    out: list[Candidate] = []
    beside: list[bool] = []
    answering: set[str | None] = set()
    used = _used_words(trace, built)
    files = {normal(s.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0]) for s in settings}
    answered = _configs_with_a_model(settings)
    for rank, setting in named(settings, rules("names")["model"]):
        if _wrong_part(setting) or (setting.kind == "globals" and len(setting.path) > 1):
            continue
        text = text_of(setting.value)
        name = model_name(text) if text is not None else None
        if name is None:
            continue
        if setting.key == "encodertype" and not is_known(name, "models"):
            continue  # its direction, or what it reads
        if setting.key == "learner" and not is_whole(name):
            continue  # whatever else learns, or an optimiser
        if setting.kind == "globals" and normal(name) in files and not is_known(name, "models"):
            continue  # a name for the run, made from its configuration's
        if setting.key in _FILES and (
            not is_known(name, "models") or is_known(name, "datasets") or text in answered
        ):
            continue  # a file named after a dataset holds an experiment
        score = _score(name, rank, setting, _base(name, used), bool(built))
        origin = setting.value.origin
        nested = _is_nested_backbone(setting)
        out.append(Candidate(name, origin, score, _OF_BACKBONE if nested else None))
        beside.append(setting.key in _BACKBONES)
        if rank <= _STRONG and is_known(name, "models") and origin is not None:
            answering.add(origin.file)
    _below_the_chosen(out, beside, answering - {None})
    targets = _config_classes(settings)
    made = {str(candidate.data) for candidate in built}
    for candidate in targets:
        if candidate.data in made:
            candidate.score += 6  # and not a part of it
    return _with_classes([*out, *_looked_up(trace, settings)], targets, built)


def _base(name: str, used: set[str]) -> float:
    """How much a name weighs for what the program did by it.

    One that it looked something up by says more than one that stands alone, and one after which
    a class is called that it made, `cut` and `CUTModel`, more still.
    """
    plain = normal(name)
    if len(plain) > 2 and any(plain + kind in used for kind in ("model", "net", "network")):
        return 86.0
    return 78.0 if plain in used else 62.0


def _score(name: str, rank: int, setting: Setting, base: float, built: bool) -> float:
    """How likely the value of a setting is the model's name, from `base` on."""
    origin = setting.value.origin
    score = base
    score += source_bonus(origin) * (1.5 if setting.explicit else 0.7) - 0.2 * rank
    typed = setting.explicit and setting.kind in ("arguments", "dataclass")
    if typed and rank <= _STRONG:
        looked_up = base >= 78 and not is_known(name, "datasets")
        score = max(score, 86 - 0.2 * rank + (6 if looked_up else 0))
    elif typed:
        variant = setting.key in _FILES and re.search(r"\d", name)
        score = max(score, 86 if variant else 76 - 0.1 * rank)
    if not built:
        score += 6
    if rank <= _PRETRAINED and origin is not None and origin.source == "config":
        score += 8
    if is_known(name, "models"):
        # a variant such as resnet50 or swin_tiny says more than the class it is made from
        score += 18 if re.search(r"\d|[-_]", name) else 8
    if setting.kind == "globals":
        score -= 8
    if setting.key in _FILES and not setting.explicit:
        score -= 25  # what a part of it starts from
    if origin is not None and origin.source == "library":
        score -= 25
    if setting.key in _BACKBONES and _KIND_OF_PART.fullmatch(name):
        score -= 12
    if setting.key == "netg" and not setting.explicit:
        score -= 14  # the generator of a model that has its own name
    if "/" in str(setting.value.data) and not is_known(name, "models"):
        if setting.key in ("modelpath", "checkpoint"):
            score -= 25  # where it is written to
    return score


def _below_the_chosen(
    found: list[Candidate], beside: list[bool], answering: set[str | None]
) -> None:
    """Put backbones, of which `beside` says, behind a model that the launch names.

    `answering` are the files that name a model besides the backbone.
    """
    whole = best([c for c, part in zip(found, beside, strict=True) if not part and _given(c)])
    chosen = whole is not None and whole.score >= 78
    for candidate, backbone in zip(found, beside, strict=True):
        file = candidate.origin.file if candidate.origin is not None else None
        if backbone and whole is not None and chosen:
            candidate.score = min(candidate.score - 15, whole.score - 1)  # it has this one
        elif backbone and file in answering and not _given(candidate):
            candidate.score -= 15


def _given(candidate: Candidate) -> bool:
    """Whether the launch itself says so."""
    return candidate.origin is not None and candidate.origin.source in EXPLICIT


def _is_nested_backbone(setting: Setting) -> bool:
    return setting.key in _BACKBONES and len(setting.path) > 1 and not setting.explicit


def _with_classes(
    named: list[Candidate], classes: list[Candidate], built: list[Candidate]
) -> list[Candidate]:
    """Both, where a class that is named or well known comes before the backbone it is given."""
    if any(c.score >= 70 for c in classes) or any(
        c.score >= 80 and is_known(str(c.data), "models") for c in built
    ):
        for candidate in named:
            if candidate.note == _OF_BACKBONE:
                candidate.score -= 25
    return [*named, *classes]


def _looked_up(trace: Trace, settings: list[Setting]) -> list[Candidate]:
    """Known models that the program looked up by a setting's value, whatever the setting's name."""
    found = []
    names = {normal(name) for name in trace.looked_up}
    for setting in settings:
        text = setting.value.data
        if not isinstance(text, str) or normal(text) not in names or _wrong_part(setting):
            continue
        key = setting.path[-1]
        if not is_known(text, "models") or not re.search(r"model|arch|net|backbone", key):
            continue
        if model_name(text) is None:
            continue
        score = 80.0 - (12 if re.search(r"teacher|_t$|pretrain|aux", key) else 0)
        score -= 24 if re.search(r"upsampl|pose_|embed|decod|postnet|prenet|flow_", key) else 0
        if setting.key == "netg" and not setting.explicit:
            score -= 14
        note = _OF_BACKBONE if _is_nested_backbone(setting) else None
        found.append(Candidate(text, setting.value.origin, score, note))
    return found


def _configs_with_a_model(settings: list[Setting]) -> set[str]:
    """Configuration files that name the model themselves: their own name is a label of the run."""
    return {
        setting.owner.removeprefix("./")
        for rank, setting in named(settings, rules("names")["model"])
        if setting.kind == "config" and rank <= _STRONG and isinstance(setting.value.data, str)
    }


_WRONG_PART = re.compile(
    r"language_?backbone|text_?backbone|optim|sched|data|loss|teacher|discriminator|logger|wandb|eval|ema|tokenizer|callback|metric|"
    r"critic|reward|sampl|solver|vae|cond_stage|first_stage|neck|head|aug|lora|slm$|vocoder|speaker|"
    r"text_enc|content_enc|condition|checkpointer|^dis$",
    re.IGNORECASE,
)


def _wrong_part(setting: Setting) -> bool:
    return any(_WRONG_PART.search(part) for part in setting.path[:-1])


def _used_words(trace: Trace, built: list[Candidate]) -> set[str]:
    """Normalised names that were called, or passed to something that was."""
    words = {normal(str(candidate.data)) for candidate in built}
    words |= {normal(name) for name in trace.looked_up}
    for event in trace.calls:
        if event.function:
            words.add(normal(event.function))
        words.add(normal(classes.last(event.path)))
        for value in event.args[:3]:
            if isinstance(value.data, str) and len(value.data) < 80:
                words.add(normal(value.data))
    return words


_MODEL_SECTION = re.compile(
    r"^(model|net|nnet|network|network_g|net_g|module|arch|generator|unet|architecture|unet_config|"
    r"init_args|denoiser|backbone_model|embedding_model|policy|transformer|enc|encoder|generator)$"
)
_INNER = ("net", "network", "network_g", "net_g", "unet", "arch", "architecture", "unet_config")


_ASSEMBLY = re.compile(
    r"(Cascade)?EncoderDecoder(Decoupled)?|(\w*Image)?Classifier|(TopDown|Topdown|BottomUp|Bottomup)\w*|"
    r"Recognizer(2D|3D|GCN)|(Single|Two)StageDetector|BaseDetector|TextRecognizer|\w*Wrapper|"
    r"MODNet|DiffusionEngine"
)
"""Classes that only put parts together, of which one gives the model its name."""

_CLASS_KEYS = ("type", "_component_", "_target_", "class_path", "target", "_class_name", "__tag__")


def _config_classes(settings: list[Setting]) -> list[Candidate]:
    """`model: {type: X}` and `model: {_target_: pkg.X}` of config-driven programs."""
    out: list[Candidate] = []
    for setting in settings:
        key, parts = setting.path[-1], [part.lower() for part in setting.path[:-1]]
        if key not in _CLASS_KEYS or not parts:
            continue
        if not _MODEL_SECTION.match(parts[-1]) and parts[0] != "model":
            continue
        if _wrong_part(setting) or len(parts) > 4:
            continue
        text = text_of(setting.value)
        if text is None or (key == "__tag__" and not text.startswith(("!new:", "!name:"))):
            continue
        score = 76.0 - 3 * max(0, len(parts) - (2 if parts[-1] == "model" else 1))
        name = text.rsplit(".", 1)[-1]
        if _ASSEMBLY.fullmatch(name):
            out.extend(_assembled(setting, settings))
            score -= 20
        inner = parts[-1] in _INNER and (len(parts) > 1 or parts[-1] == "network_g")
        if inner and parts[-1] != "unet_config":
            score += 8
        if re.search(r"^Lit[A-Z]|Lit$|Module$|Wrapper|Lightning|Task$", name) and not inner:
            score -= 12
        out.append(Candidate(name, setting.value.origin, score))
    return out


def _assembled(setting: Setting, settings: list[Setting]) -> list[Candidate]:
    """The name of an assembly: from its configuration file's name, its head, or its backbone."""
    found: list[Candidate] = []
    file = setting.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    for word in re.split(r"[_.]", file):
        if is_known(word, "models") and not is_known(word, "datasets"):
            found.append(Candidate(word, setting.value.origin, 78, "the configuration's name"))
            break
    for other in settings:
        parts = [part.lower() for part in other.path]
        if other.owner != setting.owner or len(parts) < 3 or parts[-1] not in _CLASS_KEYS:
            continue
        text = text_of(other.value)
        if parts[:-2] != [part.lower() for part in setting.path[:-1]] or text is None:
            continue
        name = text.rsplit(".", 1)[-1]
        if parts[-2] == "backbone":
            found.append(Candidate(name, other.value.origin, 74))
        elif parts[-2] == "decode_head" and is_known(name, "models"):
            found.append(Candidate(name.removesuffix("Head"), other.value.origin, 77))
    return found
