"""Fields beside the mandatory ones: batch sizes, optimiser, precision, parallelism, sizes."""

from __future__ import annotations

import re
from dataclasses import replace

from schedmate.agent.configs.class_keys import class_keys
from schedmate.agent.fields import called, loaders, optimizers, precision, prior
from schedmate.agent.fields.candidates import (
    Candidate,
    argument,
    best,
    by_rule,
    is_launched,
    is_number,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.leaves import Setting, named, normal
from schedmate.agent.fields.proofs import Lines
from schedmate.agent.fields.reads import Reads
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Value

SETTING = "setting"
"""Rule: a setting says it."""
_STRINGS = {"optimizer", "precision"}
_NOT_HERE = re.compile(
    r"eval|valid|test|(?<![a-z])val(?![a-z])|teacher|discriminator|logger|wandb|(?<!batch_)sampl|infer|"
    r"^(rollout|ref|reward(_model)?|critic|vllm\w*|generat\w*)$",
    re.IGNORECASE,
)
_OTHER_INPUT = re.compile(r"encod|lstm|rnn|gru|pool|atten|layer|forward", re.IGNORECASE)
"""Parts of a model whose input is no picture."""
_LATENT = re.compile(r"unet|nnet|latent|denoiser", re.IGNORECASE)
"""Parts whose pictures may be smaller than the data's."""
_SMALLEST_IMAGE = 16
_SCHEDULE = re.compile(r"sched", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,18}(\.\d+)?([eE]-?\d{1,2})?")


def find(trace: Trace, settings: list[Setting], lines: Lines) -> dict[str, Candidate]:
    """Extra training fields that the code states, by field name; `lines` is the repository."""
    found: dict[str, Candidate] = {}
    unread: dict[str, Candidate] = {}
    weighed: dict[str, list[Candidate]] = {}
    unusable: set[str] = set()
    reads = Reads(trace, settings)
    for field, aliases in rules("names")["extras"].items():
        known = named(settings, aliases)
        if field in ("batch_size", "lr") and any(_is_unusable(field, one) for _, one in known):
            unusable.add(field)
        reads.mark(known)
        options = _candidates(field, [one for one in known if not one[1].unread])
        left = best(_candidates(field, [one for one in known if one[1].unread]))
        if left is not None:
            score = left.score + prior.further["unread"]
            unread[field] = replace(reads.doubted(left), score=score)
        if field == "batch_size":
            _loaded(trace, options)
        chosen = best(options)
        if chosen is None and field == "optimizer":
            chosen = best(_of_section(settings))
        if chosen is not None:
            found[field] = chosen
        weighed[field] = options
    _precision(settings, found)
    by_rule(SETTING, found.values())
    called.add(trace, found)
    makers = optimizers.made(trace)
    optimizers.add(makers, found)
    by_rule("call", found.values())
    _parameters(trace, found)
    by_rule("parameter", found.values())
    found = unread | found
    optimizers.compare(makers, found, lines)
    precision.on_cpu(trace, settings, found)
    by_rule("call", found.values())
    found = {
        field: replace(chosen, considered=[*weighed.get(field, ()), chosen])
        for field, chosen in found.items()
        if is_launched(chosen.origin) or field not in unusable
    }
    if named(settings, ["train_micro_batch_size_per_gpu"]):
        # DeepSpeed's train_batch_size counts all GPUs and accumulation steps
        whole = best(_candidates("batch_size", named(settings, ["train_batch_size"])))
        if whole is not None:
            found["global_batch_size"] = whole
    per_device = found.get("per_device_batch_size")
    parsed = any(
        settings_.kind == "dataclass" and "per_device_train_batch_size" in settings_.value.data
        for settings_ in trace.settings
        if isinstance(settings_.value.data, dict)
    )
    if per_device is not None and (parsed or "batch_size" not in found):
        found["batch_size"] = per_device
    elif "batch_size" not in found and "global_batch_size" in found:
        found["batch_size"] = found["global_batch_size"]
    return found


def _is_unusable(field: str, setting: Setting) -> bool:
    """Whether the launch gives a number that is none: what the program then does is not known."""
    given = setting.explicit and setting.value.known and setting.value.data is not None
    return bool(given and _TELLING.search(setting.path[-1])) and (
        _usable(field, setting.value) is None
    )


def _loaded(trace: Trace, options: list[Candidate]) -> None:
    """Prefer, of several defaults, the batch size that a data loader is given."""
    sizes = {
        size.data
        for event in trace.calls
        if (size := loaders.size_of(event)) is not None and is_number(size)
    }
    for option in options:
        if option.data in sizes and option.source == "default":
            option.score += prior.further["loaded"]


_TELLING = re.compile(r"batch.?size|^lr$|learning.?rate", re.IGNORECASE)
"""Parameters that mean a field in whatever function they are."""


def _parameters(trace: Trace, found: dict[str, Candidate]) -> None:
    """What the program's own functions are given under a field's name, where nothing else says."""
    given = {
        normal(name): value
        for name, value in trace.parameters.items()
        if _TELLING.search(name) and (value.number or 0) > 0
    }
    for field, most in (("batch_size", 10**7), ("lr", 1)):
        for alias in rules("names")["extras"][field] if field not in found else ():
            value = given.get(normal(alias))
            if is_number(value) and value.data < most:
                found[field] = Candidate(value.data, value.origin, prior.further["parameter"])
                break


def _of_section(settings: list[Setting]) -> list[Candidate]:
    """Optimisers by name below a section of them: `optimizer: {generator: {name: Adam}}`."""
    return [
        Candidate(setting.value.data, setting.value.origin, prior.further["section"])
        for setting in settings
        if setting.path[-1] in class_keys("path", "class", "name")
        and any(re.fullmatch(r"optim(izer)?s?", part.lower()) for part in setting.path[:-2])
        and isinstance(setting.value.data, str)
        and optimizers.is_optimizer(setting.value.data)
    ]


_CONFIGURATION = re.compile(r"transformers\.(\w+\.)*\w+Config")
"""What a model of Hugging Face's is made from, where its sizes are given in the program."""


_SWITCHED_ON = {"n_kv_head", "n_experts"}
"""Sizes of what a program may also do without: the default of an option is no sign of it."""


def architecture(trace: Trace, settings: list[Setting]) -> dict[str, Candidate]:
    """Sizes of the model that settings, or the configuration it is made from, state as numbers."""
    found: dict[str, Candidate] = {}
    made = [event for event in trace.calls if _CONFIGURATION.fullmatch(event.path)]
    for field, aliases in rules("names")["architecture"].items():
        usable = [
            (rank, setting) for rank, setting in named(settings, aliases) if _is_size(setting.value)
        ]
        options = _candidates(field, usable)
        if field in _SWITCHED_ON:
            options = [one for one in options if one.origin and one.source != "default"]
        for event in made:
            value = argument(event, list(aliases))
            if value is not None and _is_size(value):
                options.append(Candidate(value.data, value.origin, prior.further["configuration"]))
        chosen = best(by_rule("call", options))
        if chosen is not None:
            found[field] = replace(chosen, considered=options)
    return found


def _is_size(value: Value) -> bool:
    """Whether this is a count of layers, heads or units: a `depth: 0.33` scales a given one."""
    return is_number(value) and value.data >= 1 and float(value.data).is_integer()


def _candidates(field: str, options: list[tuple[int, Setting]]) -> list[Candidate]:
    out = []
    for rank, setting in options:
        if any(_NOT_HERE.search(part) for part in setting.path[:-1]):
            continue
        data = _usable(field, setting.value)
        if data is None or (field == "image_size" and not _is_image(setting, data)):
            continue
        score = (
            prior.further["named"]
            + prior.further["rank"] * rank
            + source_bonus(setting.value.origin)
        )
        if setting.kind == "globals":
            score += prior.further["globals"]
        if any(_SCHEDULE.search(part) for part in setting.path[:-1]):
            score += prior.further["schedule"]
        if field == "lr" and "params" in setting.path[:-1]:
            score += prior.further["group"]
        if field == "image_size" and any(_LATENT.search(part) for part in setting.path[:-1]):
            score += prior.further["latent"]
        if field == "optimizer" and not optimizers.is_optimizer(str(data)):
            score += prior.further["no optimiser"]
        out.append(Candidate(data, setting.value.origin, score, rule=SETTING))
    return out


def _is_image(setting: Setting, size: object) -> bool:
    """Whether this is the side of a picture in pixels, and not the width of a layer."""
    layer = setting.key == "inputsize" and any(_OTHER_INPUT.search(p) for p in setting.path[:-1])
    return isinstance(size, int) and size >= _SMALLEST_IMAGE and not layer


def _usable(field: str, value: Value) -> object:
    if field in _STRINGS:
        if field == "precision":
            return called.precision(value)
        text = text_of(value)
        if not isinstance(value.data, str) and text and not optimizers.is_optimizer(text):
            return None  # the library's module, or a function that makes it
        text = re.sub(r",.*|^torch\.optim\.", "", text or "")  # `adam,lr=0.0001`
        return text if text and len(text) < 40 and "/" not in text else None
    if field == "image_size" and isinstance(value.data, list | tuple):
        numbers = [item.data for item in value.data if is_number(item)]
        return numbers[-1] if numbers and len(numbers) <= 3 else None
    if isinstance(value.data, str) and _NUMBER.fullmatch(value.data):
        written = value.data
        value = Value(float(written) if re.search(r"[.e]", written.lower()) else int(written))
    if not is_number(value) or not 0 < value.data <= called.LARGEST:
        return None
    number = value.data
    if field == "lr" or not isinstance(number, float):
        return number
    if number.is_integer():
        return int(number)
    return None if field.endswith("batch_size") else number  # a part of one, or of the memory


def _precision(settings: list[Setting], found: dict[str, Candidate]) -> None:
    if "precision" in found and found["precision"].data != "fp32":
        return
    flags = rules("names")["precision_flags"]
    for name, meaning in flags.items():
        for _, setting in named(settings, [name]):
            if setting.value.data is True:
                found["precision"] = Candidate(
                    meaning, setting.value.origin, prior.further["precision flag"]
                )
                return
        for setting in settings:
            # DeepSpeed and detectron2 keep a section: fp16: {enabled: true}
            if len(setting.path) > 1 and setting.path[-2].lower() == name:
                if setting.key == "enabled" and setting.value.data is True:
                    found["precision"] = Candidate(
                        meaning, setting.value.origin, prior.further["precision section"]
                    )
                    return
