"""`model_config.model_name`: the architecture this launch trains."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    matches,
    named,
    normal,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.words import is_known, model_name
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Call, Class, Instance
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin

_FILES = ("cfg", "weights", "checkpoint")
"""Settings that hold a file; only a file named after a known model names one."""

_PRETRAINED = 2
"""Names up to this rank mean a pretrained model and nothing else."""

_STRONG = 24
"""Names up to this rank mean the model wherever they stand on a command line."""

_TARGET = re.compile(r"^(\w*_)?(model|net|network|classifier|policy|agent|backbone|generator|netg|"
                     r"actor_critic|q_network|unet|transformer|student|"
                     r"detector|llm|lm|ac|pi)(_\w*)?\d*$", re.IGNORECASE)  # fmt: skip
_AUXILIARY = re.compile(
    r"teacher|ema|target|discriminator|netd|critic|loss|criterion|tokenizer|vae|text_encoder|"
    r"reward|ref(erence)?_?model|ref_|head|embed|sampler|metric|scheduler|extractor|vgg|lpips|averag",
    re.IGNORECASE,
)
_MEASURING = re.compile(
    r"(^|[/_])(fid|metrics?|eval\w*|lpips|inception|score|scoring|is_score)([/_.]|$)", re.IGNORECASE
)
_PLAIN_FILE = re.compile(
    r"__main__|models?|nets?|networks?|main|train|run|modules?|__init__|utils?", re.IGNORECASE
)
_PLAIN_MODEL = re.compile(r"(Model|Net|Network|Transformer|GAN|VAE|Agent)$")
_PART = re.compile(
    r"(Layer|Block|Encoder|Decoder|Embedding|Embedder|Head|Attention|Actor|Critic|QNetwork|Policy|"
    r"Value|Temperature|\w*Function|Twin\w*|Encoding|Conv\d?d?|Unit|Stem|Neck|Pool(ing)?|WithTTA|Stack|Module|Extractor)$"
)
_MAKER = re.compile(r"(make|build|create|get)_(model|net|network|agent|policy)$", re.IGNORECASE)
_NOT_NETWORK = re.compile(
    r"loss|criterion|metric|sampler|embedding$|scheduler|collat|augment|transform$|normaliz|"
    r"dropout|activation|ema$|meter|mixup|optimizer|parallel$|lora|noise_?sched|schedule|"
    r"preprocess|postprocess|tokenizer|logger|policyhead|flow$|(shift|crop|random\w*)s?aug$",
    re.IGNORECASE,
)
_NOT_A_MODEL_CALL = re.compile(
    r"^(torch\.(nn|optim|utils|cuda|distributed|jit|load|device|tensor|zeros|ones|randn|no_grad|"
    r"autocast|amp|compile|save|manual_seed)|numpy|os\b|sys\b|logging|json|yaml|time|random|"
    r"collections|datetime|argparse|re\b|wandb|tensorboard|pathlib|typing|dataclasses|copy|math|"
    r"functools|itertools|shutil|accelerate|deepspeed|omegaconf|hydra|open|print|jax\.(numpy|random|"
    r"lax)|optax|tensorflow\.(constant|random|data|config|distribute|train|keras\.(Input|layers))|"
    r"keras\.(Input|layers|optimizers|callbacks|losses|models\.load_model)|ray|absl|ml_collections)"
)


def find(trace: Trace, settings: list[Setting], entry: str | None = None) -> Candidate | None:
    """The model's name, None when the code does not say. `entry` is the program's file."""
    built = _built(trace)
    from_settings = list(_from_settings(trace, settings, built))
    from_calls = list(_from_calls(trace))
    found = best([*from_settings, *from_calls, *built, *_from_entry(trace, entry)])
    if found is not None and found.note == "class constructed":
        # a variant the user named, yolov7 beside a class found in yolo.py, says more
        stem = normal(str(found.data))
        for other in from_settings:
            longer = normal(str(other.data))
            if other.score >= 60 and longer.startswith(stem) and longer != stem:
                return other
    if found is not None:
        # where settings name the same thing, they are the better evidence
        for other in from_settings:
            if normal(str(other.data)) == normal(str(found.data)):
                return Candidate(
                    other.data, other.origin, max(found.score, other.score), other.note
                )
    if entry is not None and found is not None and found.data in ("Model", "Sequential"):
        stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
        if not _PLAIN_FILE.match(stem):
            return Candidate(stem, Origin("code", entry, 1), 50, "the script's name")
    return found


def _from_entry(trace: Trace, entry: str | None) -> list[Candidate]:
    """A script named after what it trains, where it builds a nameless model or an agent."""
    if entry is None or not trace.calls:
        return []
    stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
    stem = re.sub(
        r"^(train|run|main|pretrain|finetune)_|_(train|main|run|training|trainer)$", "", stem
    )
    known = re.compile("|".join(rules("vocabulary")["models"].values()))
    found = max(
        (m.group() for m in known.finditer(re.sub(r"[_ .]+", "-", stem.lower()))),
        key=len,
        default="",
    )
    if not found:
        return []
    whole = len(found) >= 0.6 * len(stem) or stem.lower().replace("_", "-").startswith(found)
    name = stem if whole else found.strip("-")
    score = 66 if name == stem else 58
    return [Candidate(name, Origin("code", entry, 1), score, "the script's name")]


def _built(trace: Trace) -> list[Candidate]:
    """The repository's own network classes, the outermost ones."""
    out: list[Candidate] = []
    optimised = _optimised(trace)
    parts = _parts(trace)
    for event in trace.calls:
        cls = event.cls
        if cls is None or event.inside:
            continue
        if classes.is_training_module(cls):
            out.append(_training_module(event, cls))
            continue
        if not classes.is_network(cls):
            if re.match(r"Random|Dummy|Mock", cls.name):
                continue
            if _PLAIN_MODEL.search(cls.name) and (
                _TARGET.match(event.target) or _MAKER.match(event.function)
            ):
                origin = event.result.origin if event.result is not None else None
                own = cls.name.endswith("Agent") and not cls.name.startswith("Base")
                score = 67.0 if own and len(cls.name) > 6 else 57.0
                out.append(Candidate(cls.name, origin, score, "class constructed"))
            continue
        if _NOT_NETWORK.search(cls.name):
            continue
        score = _class_score(event, cls, optimised, parts)
        origin = event.result.origin if event.result is not None else None
        out.append(Candidate(_class_name(cls), origin, score, "class constructed"))
    return out


def _class_score(event: CallEvent, cls: Class, optimised: set[int], parts: set[int]) -> float:
    """How likely a constructed network is the one that is trained."""
    identity = id(event.result.data) if event.result is not None else 0
    target = event.target or event.function
    score = 72.0
    if identity in optimised:
        score += 8
    if identity in parts:
        score -= 6
    if _MEASURING.search(event.site.file):
        score -= 15
    if _PART.search(cls.name):
        score -= 16
    if not is_known(cls.name, "models"):
        score -= 6
    if _AUXILIARY.search(target) or _AUXILIARY.search(cls.name):
        score -= 20
    elif _TARGET.match(event.target) or re.search(r"(build|create|get|make)_?(model|net)", target):
        score += 4
    if not event.certain:
        score -= 15
    if event.in_loop:
        score -= 8
    return score


def _class_name(cls: Class) -> str:
    """The class's name; a class called Model is named by its module."""
    if cls.name.strip("_") not in ("Model", "Net", "Network"):
        return cls.name
    stem = cls.module.name.rsplit(".", 1)[-1]
    return cls.name if _PLAIN_FILE.fullmatch(stem) else stem


def _parts(trace: Trace) -> set[int]:
    """Identities of networks that were given to another network's constructor."""
    found: set[int] = set()
    for event in trace.calls:
        if event.cls is not None and classes.is_network(event.cls):
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


def _from_calls(trace: Trace) -> list[Candidate]:
    out: list[Candidate] = []
    for event in trace.calls:
        if len(event.inside) > 1 or event.cls is not None:
            continue
        known = False
        for rule in rules("calls")["model"]:
            if not matches(event, rule):
                continue
            known = True
            found = _named_by(event, rule)
            if found is not None:
                out.append(found)
                break
        keras = event.path in ("keras.Model", "keras.models.Model", "keras.Sequential",
                               "keras.models.Sequential")  # fmt: skip
        if (
            not known
            and (keras or _TARGET.match(event.target))
            and not _AUXILIARY.search(event.target)
        ):
            generic = _generic(event)
            if generic is not None:
                out.append(generic)
    return out


def _named_by(event: CallEvent, rule: dict[str, Any]) -> Candidate | None:
    last = classes.last(event.path)
    if "skip" in rule and re.search(rule["skip"], event.path):
        return None
    if "only" in rule and not re.search(rule["only"], last):
        return None
    score = 84.0 if event.certain else 66.0
    if rule.get("weak"):
        score -= 22
    if _AUXILIARY.search(event.target) or (event.inside and not rule.get("weak")):
        score -= 14
    if event.inside and rule["name"] == "path":
        score -= 4
    if _MEASURING.search(event.site.file):
        score -= 24
    spec = rule["name"]
    site = event.result.origin if event.result is not None else None
    if spec == "path":
        if not last[:1].isalpha() or last in ("from_pretrained", "load", "list_models"):
            return None
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
    if name is None:
        return None
    origin = value.origin if value is not None and value.origin is not None else site
    return Candidate(name, origin, score + 6 + source_bonus(origin) / 2, None)


_BUILDER = re.compile(
    r"^_*(main|run|train|fit|setup|init|__\w+__|((build|create|get|make|define|load|init|construct|"
    r"compile|prepare|setup|model)_?)+(the_)?(model|net|network|nn|keras_model)?s?|"
    r"model|net|network|call|forward|fn|wrapper|worker|do_\w+|train_\w+|run_\w+)$",
    re.IGNORECASE,
)


def _site(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _generic(event: CallEvent) -> Candidate | None:
    """A third-party class or factory whose result goes into a variable called model."""
    if _NOT_A_MODEL_CALL.match(event.path) or event.path.startswith("?") or event.in_loop:
        return None
    last = classes.last(event.path)
    if event.path.count("()") > 0 or not last[:1].isupper():
        return None
    score = 64.0 if event.certain else 50.0
    if last.endswith(("Registry", "Config", "Factory", "Cfg", "Builder", "Type", "Enum")):
        return None
    if last in ("Sequential", "Model", "Trainer", "Module", "Functional"):
        if event.owner is not None and event.function == "__init__":
            # built by the constructor of the program's own model class
            return Candidate(event.owner.name, _site(event), score + 6, "the class that builds it")
        given = event.kwargs.get("name")
        if given is not None and isinstance(given.data, str) and given.data not in ("model", "net"):
            # of nested models the outermost is built last
            place = event.site.line / 1e6
            return Candidate(given.data, given.origin, score + 4 + place, "the model's own name")
        if event.function and not _BUILDER.match(event.function):
            return Candidate(event.function, _site(event), score - 4, "the function that builds it")
        score -= 20
    origin = event.result.origin if event.result is not None else None
    return Candidate(last, origin, score, "class constructed")


def _from_settings(
    trace: Trace, settings: list[Setting], built: list[Candidate]
) -> list[Candidate]:
    out: list[Candidate] = []
    used = _used_words(trace, built)
    answered = _configs_with_a_model(settings)
    for rank, setting in named(settings, rules("names")["model"]):
        if _wrong_part(setting) or (setting.kind == "globals" and len(setting.path) > 1):
            continue
        text = text_of(setting.value)
        name = model_name(text) if text is not None else None
        if name is None:
            continue
        if setting.key in _FILES and (
            not is_known(name, "models") or is_known(name, "datasets") or text in answered
        ):
            continue  # a file named after a dataset holds an experiment
        origin = setting.value.origin
        # a name that the program looked something up by weighs more than one that stands alone
        linked = normal(name) in used
        score = 78.0 if linked else 62.0
        score += source_bonus(origin) * (1.5 if setting.explicit else 0.7) - 0.2 * rank
        if setting.explicit and setting.kind == "arguments" and rank <= _STRONG:
            score = max(score, 86 - 0.2 * rank)
        elif setting.explicit and setting.kind == "arguments":
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
        if origin is not None and origin.source == "library":
            score -= 25
        out.append(Candidate(name, origin, score))
    out.extend(_config_classes(settings))
    out.extend(_looked_up(trace, settings))
    return out


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
        score = 80.0 - (12 if re.search(r"teacher|_t$|pretrain|aux", key) else 0)
        found.append(Candidate(text, setting.value.origin, score))
    return found


def _configs_with_a_model(settings: list[Setting]) -> set[str]:
    """Configuration files that name the model themselves: their own name is a label of the run."""
    return {
        setting.owner.removeprefix("./")
        for rank, setting in named(settings, rules("names")["model"])
        if setting.kind == "config" and rank <= _STRONG and isinstance(setting.value.data, str)
    }


def _wrong_part(setting: Setting) -> bool:
    return any(
        re.search(r"optim|sched|data|loss|teacher|discriminator|logger|wandb|eval|ema|tokenizer|"
                  r"callback|metric|critic|reward|sampl|solver|vae|cond_stage|first_stage|neck|head|"
                  r"aug|lora|slm$|vocoder|speaker", part, re.IGNORECASE)
        for part in setting.path[:-1]
    )  # fmt: skip


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
    r"init_args|denoiser|backbone_model|embedding_model|transformer|enc|encoder|generator)$"
)
_INNER = ("net", "network", "network_g", "net_g", "unet", "arch", "architecture", "unet_config")


_CLASS_KEYS = ("type", "_target_", "class_path", "target", "_class_name", "__tag__")


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
        score = 76.0 - 3 * max(0, len(parts) - 1)
        name = text.rsplit(".", 1)[-1]
        inner = parts[-1] in _INNER and (len(parts) > 1 or parts[-1] == "network_g")
        if inner:
            score += 8
        if re.search(r"Lit|Module$|Wrapper|Lightning|Task$", name) and not inner:
            score -= 12
        out.append(Candidate(name, setting.value.origin, score))
    return out
