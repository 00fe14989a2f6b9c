"""Classes that configuration files name for the program to construct."""

from __future__ import annotations

import re
from collections import Counter

from schedmate.agent.configs.class_keys import class_keys
from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, text_of
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.fields.model.names import NOT_MODEL
from schedmate.agent.fields.words import is_known, words

_WRONG_PART = re.compile(
    r"language_?backbone|text_?backbone|optim|sched|data|loss|teacher|discriminator|logger|wandb|eval|ema|tokenizer|callback|metric|"
    r"critic|reward|init_cfg|sampl|solver|vae|cond_stage|first_stage|pretransform|neck|head|aug|lora|slm$|vocoder|speaker|"
    r"text_enc|content_enc|condition|checkpointer|^dis$",
    re.IGNORECASE,
)


def wrong_part(setting: Setting) -> bool:
    """Whether a setting stands in a section of something else than the model."""
    return any(_WRONG_PART.search(part) for part in setting.path[:-1])


_MODEL_SECTION = re.compile(
    r"^(model|net|nnet|network|network_g|net_g|module|arch|generator|unet|architecture|unet_config|"
    r"init_args|denoiser|backbone_model|embedding_model|policy|transformer|enc|encoder)$"
)
_INNER = (
    "net",
    "network",
    "network_config",
    "network_g",
    "net_g",
    "unet",
    "arch",
    "architecture",
    "unet_config",
)


_ASSEMBLY = re.compile(
    r"(Cascade)?EncoderDecoder(Decoupled)?|(\w*Image)?Classifier|(TopDown|Topdown|BottomUp|Bottomup)\w*|"
    r"Recognizer(2D|3D|GCN)|(Single|Two)StageDetector|BaseDetector|TextRecognizer|\w*Wrapper|"
    r"MODNet|DiffusionEngine|Base\w*Model"
)
"""Classes that only put parts together, of which one gives the model its name."""


def config_classes(settings: list[Setting]) -> list[Candidate]:
    """`model: {type: X}` and `model: {_target_: pkg.X}` of config-driven programs."""
    out: list[Candidate] = []
    sides = Counter(
        setting.path[0].lower()
        for setting in settings
        if len(setting.path) == 3 and setting.path[-1] == "_target_"
    )
    for setting in settings:
        key, parts = setting.path[-1], [part.lower() for part in setting.path[:-1]]
        if key not in class_keys("path", "class", "tag") or not parts:
            continue
        if not _MODEL_SECTION.match(parts[-1]) and parts[0] != "model":
            continue
        if wrong_part(setting) or len(parts) > 4:
            continue
        text = text_of(setting.value)
        if text is None or (key == "__tag__" and not text.startswith(("!new:", "!name:"))):
            continue
        score = prior.configured_class["named"]
        score += prior.configured_class["deeper"] * max(
            0, len(parts) - (2 if parts[-1] == "model" else 1)
        )
        name = re.sub(r"\.v\d+$", "", text).rsplit(".", 1)[-1]  # `spacy.Tok2Vec.v2`
        if name in ("model", "network") and "." in text:
            name = text.split(".")[-2]  # a module of the package that is named after it
        if name in words("not_models") or NOT_MODEL.search(name):
            continue
        if _ASSEMBLY.fullmatch(name):
            out.extend(_assembled(setting, settings))
            score += prior.configured_class["assembly"]
        inner = parts[-1] in _INNER and (len(parts) > 1 or parts[-1] == "network_g")
        if inner and any(re.fullmatch(r"(agent|algo(rithm)?)s?", part) for part in parts[:-1]):
            score += prior.configured_class["of an agent"]
        elif inner and parts[-1] != "unet_config":
            score += prior.configured_class["inner"]
        if parts[0] == "model" and len(parts) == 2 and not inner and sides[parts[0]] > 1:
            score += prior.configured_class["one of several"]
        if re.search(r"^Lit[A-Z]|Lit$|Module$|Wrapper|Lightning|Task$", name) and not inner:
            score += prior.configured_class["wrapper"]
        out.append(Candidate(name, setting.value.origin, score, rule="configured class"))
    return out


def _assembled(setting: Setting, settings: list[Setting]) -> list[Candidate]:
    """The name of an assembly: from its configuration file's name, its head, or its backbone."""
    found: list[Candidate] = []
    rule = "part of an assembly"
    file = setting.owner.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    for word in re.split(r"[_.]", file):
        if is_known(word, "models") and not is_known(word, "datasets"):
            found.append(
                Candidate(
                    word,
                    setting.value.origin,
                    prior.part_of_an_assembly["file name"],
                    "the configuration's name",
                    rule,
                )
            )
            break
    for other in settings:
        parts = [part.lower() for part in other.path]
        if other.owner != setting.owner or len(parts) < 3:
            continue
        if parts[-1] not in class_keys("path", "class", "tag"):
            continue
        text = text_of(other.value)
        if parts[:-2] != [part.lower() for part in setting.path[:-1]] or text is None:
            continue
        name = text.rsplit(".", 1)[-1]
        if parts[-2] == "backbone":
            found.append(
                Candidate(
                    name, other.value.origin, prior.part_of_an_assembly["backbone"], rule=rule
                )
            )
        elif parts[-2] == "decode_head" and is_known(name, "models"):
            found.append(
                Candidate(
                    name.removesuffix("Head"),
                    other.value.origin,
                    prior.part_of_an_assembly["head"],
                    rule=rule,
                )
            )
    return found
