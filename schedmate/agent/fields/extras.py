"""Fields beside the mandatory ones: parallel sizes, devices, and sizes of the model and its
input.

Values that cannot all hold, such as parallel sizes that do not fit on the GPUs, are not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod

from schedmate.agent.configs.trees import class_keys
from schedmate.agent.fields import prior, training
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    Lines,
    best_candidate,
    by_rule,
    is_launched,
    is_number,
    pattern_of,
    rule_argument,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.settings import Setting, normal_name, settings_named
from schedmate.agent.fields.unread import Reads
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.launchers import count_devices
from schedmate.agent.values import Value

SETTING = "setting"
"""Rule: a setting says it."""
_STRINGS = {"optimizer", "precision"}
_NOT_HERE = pattern_of("extras.not_here")
_OTHER_INPUT = re.compile(r"encod|lstm|rnn|gru|pool|atten|layer|forward", re.IGNORECASE)
"""Parts of a model whose input is no picture."""
_LATENT = re.compile(r"unet|nnet|latent|denoiser", re.IGNORECASE)
"""Parts whose pictures may be smaller than the data's."""
_SMALLEST_IMAGE = 16
_NUMBER = re.compile(r"\d{1,18}(\.\d+)?([eE]-?\d{1,2})?")


def find_extras(trace: Trace, settings: list[Setting], lines: Lines) -> dict[str, Candidate]:
    """Extra training fields that the code states, by field name; `lines` is the repository."""
    by_field: dict[str, Candidate] = {}
    unread: dict[str, Candidate] = {}
    weighed: dict[str, list[Candidate]] = {}
    unusable: set[str] = set()
    reads = Reads(trace, settings)
    for field, aliases in rules("names")["extras"].items():
        named = settings_named(settings, aliases)
        if field in ("batch_size", "lr") and any(_is_unusable(field, pair) for _, pair in named):
            unusable.add(field)
        reads.mark(named)
        options = _candidates_of(field, [pair for pair in named if not pair[1].unread])
        left = best_candidate(_candidates_of(field, [pair for pair in named if pair[1].unread]))
        if left is not None:
            score = left.score + prior.further["unread"]
            unread[field] = replace(reads.doubted(left), score=score)
        if field == "batch_size":
            _prefer_loaded_batch_size(trace, options)
        chosen = best_candidate(options)
        if chosen is None and field == "optimizer":
            chosen = best_candidate(_optimizers_of_section(settings))
        if chosen is not None:
            by_field[field] = chosen
        weighed[field] = options
    _add_precision(settings, by_field)
    by_rule(SETTING, by_field.values())
    training.add_called(trace, by_field)
    makers = training.made_optimizers(trace)
    training.add_optimizer(makers, by_field)
    by_rule("call", by_field.values())
    _add_parameters(trace, by_field)
    by_rule("parameter", by_field.values())
    by_field = unread | by_field
    training.compare_optimizers(makers, by_field, lines)
    by_rule("call", by_field.values())
    by_field = {
        field: replace(chosen, considered=[*weighed.get(field, ()), chosen])
        for field, chosen in by_field.items()
        if is_launched(chosen.origin) or field not in unusable
    }
    if settings_named(settings, ["train_micro_batch_size_per_gpu"]):
        # DeepSpeed's train_batch_size counts all GPUs and accumulation steps
        whole = best_candidate(
            _candidates_of("batch_size", settings_named(settings, ["train_batch_size"]))
        )
        if whole is not None:
            by_field["global_batch_size"] = whole
    per_device = by_field.get("per_device_batch_size")
    parsed = any(
        settings_.kind == "dataclass" and "per_device_train_batch_size" in settings_.value.data
        for settings_ in trace.settings
        if isinstance(settings_.value.data, dict)
    )
    if per_device is not None and (parsed or "batch_size" not in by_field):
        by_field["batch_size"] = per_device
    elif "batch_size" not in by_field and "global_batch_size" in by_field:
        by_field["batch_size"] = by_field["global_batch_size"]
    return by_field


def _is_unusable(field: str, setting: Setting) -> bool:
    """Whether the launch gives a number that is none: what the program then does is not known."""
    is_set = setting.explicit and setting.value.known and setting.value.data is not None
    return bool(is_set and _TELLING.search(setting.path[-1])) and (
        _usable_value(field, setting.value) is None
    )


def _prefer_loaded_batch_size(trace: Trace, options: list[Candidate]) -> None:
    """Prefer, of several defaults, the batch size that a data loader is given."""
    sizes = {
        size.data
        for event in trace.calls
        if (size := training.loader_batch_size(event)) is not None and is_number(size)
    }
    for option in options:
        if option.data in sizes and option.source == "default":
            option.score += prior.further["loaded"]


_TELLING = re.compile(r"batch.?size|^lr$|learning.?rate", re.IGNORECASE)
"""Parameters that mean a field in whatever function they are."""


def _add_parameters(trace: Trace, by_field: dict[str, Candidate]) -> None:
    """What the program's own functions are given under a field's name, where nothing else says."""
    parameters = {
        normal_name(name): value
        for name, value in trace.parameters.items()
        if _TELLING.search(name) and (value.number or 0) > 0
    }
    for field, most in (("batch_size", 10**7), ("lr", 1)):
        for alias in rules("names")["extras"][field] if field not in by_field else ():
            value = parameters.get(normal_name(alias))
            if is_number(value) and value.data < most:
                by_field[field] = Candidate(value.data, value.origin, prior.further["parameter"])
                break


def _optimizers_of_section(settings: list[Setting]) -> list[Candidate]:
    """Optimisers by name below a section of them: `optimizer: {generator: {name: Adam}}`."""
    return [
        Candidate(setting.value.data, setting.value.origin, prior.further["section"])
        for setting in settings
        if setting.path[-1] in class_keys("path", "class", "name")
        and any(re.fullmatch(r"optim(izer)?s?", part.lower()) for part in setting.path[:-2])
        and isinstance(setting.value.data, str)
        and training.is_optimizer(setting.value.data)
    ]


_CONFIGURATION = re.compile(r"transformers\.(\w+\.)*\w+Config")
"""What a model of Hugging Face's is made from, where its sizes are given in the program."""


_SWITCHED_ON = {"n_kv_head", "n_experts"}
"""Sizes of what a program may also do without: the default of an option is no sign of it."""


def find_model_sizes(trace: Trace, settings: list[Setting]) -> dict[str, Candidate]:
    """Sizes of the model that settings, or the configuration it is made from, state as numbers."""
    sizes: dict[str, Candidate] = {}
    made = [event for event in trace.calls if _CONFIGURATION.fullmatch(event.path)]
    for field, aliases in rules("names")["architecture"].items():
        usable = [
            (rank, setting)
            for rank, setting in settings_named(settings, aliases)
            if _is_size(setting.value)
        ]
        options = _candidates_of(field, usable)
        if field in _SWITCHED_ON:
            options = [one for one in options if one.origin and one.source != "default"]
        for event in made:
            value = rule_argument(event, list(aliases))
            if value is not None and _is_size(value):
                options.append(Candidate(value.data, value.origin, prior.further["configuration"]))
        chosen = best_candidate(by_rule("call", options))
        if chosen is not None:
            sizes[field] = replace(chosen, considered=options)
    return sizes


def _is_size(value: Value) -> bool:
    """Whether this is a count of layers, heads or units: a `depth: 0.33` scales a given one."""
    return is_number(value) and value.data >= 1 and float(value.data).is_integer()


def _candidates_of(field: str, options: list[tuple[int, Setting]]) -> list[Candidate]:
    out = []
    for rank, setting in options:
        if any(_NOT_HERE.search(part) for part in setting.path[:-1]):
            continue
        data = _usable_value(field, setting.value)
        if data is None or (field == "image_size" and not _is_image(setting, data)):
            continue
        score = (
            prior.further["named"]
            + prior.further["rank"] * rank
            + source_bonus(setting.value.origin)
        )
        if setting.kind == "globals":
            score += prior.further["globals"]
        if field == "lr" and "params" in setting.path[:-1]:
            score += prior.further["group"]
        if field == "image_size" and any(_LATENT.search(part) for part in setting.path[:-1]):
            score += prior.further["latent"]
        out.append(Candidate(data, setting.value.origin, score, rule=SETTING))
    return out


def _is_image(setting: Setting, size: object) -> bool:
    """Whether this is the side of a picture in pixels, and not the width of a layer."""
    layer = setting.key == "inputsize" and any(_OTHER_INPUT.search(p) for p in setting.path[:-1])
    return isinstance(size, int) and size >= _SMALLEST_IMAGE and not layer


def _usable_value(field: str, value: Value) -> object:
    if field in _STRINGS:
        if field == "precision":
            return training.precision_name(value)
        text = text_of(value)
        if not isinstance(value.data, str) and text and not training.is_optimizer(text):
            return None  # the library's module, or a function that makes it
        text = re.sub(r",.*|^torch\.optim\.", "", text or "")  # `adam,lr=0.0001`
        return text if text and len(text) < 40 and "/" not in text else None
    if field == "image_size" and isinstance(value.data, list | tuple):
        numbers = [item.data for item in value.data if is_number(item)]
        return numbers[-1] if numbers and len(numbers) <= 3 else None
    if isinstance(value.data, str) and _NUMBER.fullmatch(value.data):
        written = value.data
        value = Value(float(written) if re.search(r"[.e]", written.lower()) else int(written))
    if not is_number(value) or not 0 < value.data <= training.LARGEST_NUMBER:
        return None
    number = value.data
    if field == "lr" or not isinstance(number, float):
        return number
    if number.is_integer():
        return int(number)
    return None if field.endswith("batch_size") else number  # a part of one, or of the memory


def _add_precision(settings: list[Setting], by_field: dict[str, Candidate]) -> None:
    if "precision" in by_field and by_field["precision"].data != "fp32":
        return
    flags = rules("names")["precision_flags"]
    for name, meaning in flags.items():
        for _, setting in settings_named(settings, [name]):
            if setting.value.data is True:
                by_field["precision"] = Candidate(
                    meaning, setting.value.origin, prior.further["precision flag"]
                )
                return
        for setting in settings:
            # DeepSpeed and detectron2 keep a section: fp16: {enabled: true}
            if len(setting.path) > 1 and setting.path[-2].lower() == name:
                if setting.key == "enabled" and setting.value.data is True:
                    by_field["precision"] = Candidate(
                        meaning, setting.value.origin, prior.further["precision section"]
                    )
                    return


# Fields that have to agree with one another: values that cannot all hold are not reported.


PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")


def drop_unfitting_sizes(by_field: dict[str, Candidate], gpus: int | None) -> None:
    """Remove from `by_field` the parallel sizes that do not fit on `gpus` beside the surer ones.

    What the launch gives stands, as its count of GPUs may be that of one node. What configurations
    and defaults state counts only where it divides, as a whole, the GPUs that are left: of several
    that contradict one another none is known to be the one in use.
    """
    sizes = {name: by_field[name] for name in PARALLEL if name in by_field}
    if gpus is None or not sizes:
        return
    taken = _product(c for c in sizes.values() if c.source in EXPLICIT)
    for source in ("config", "code", "default", "library"):
        stated = {name: c for name, c in sizes.items() if c.source == source}
        together = taken * _product(stated.values())
        if gpus % together == 0:
            taken = together
        else:
            for name in stated:
                del by_field[name]


def _product(candidates: Iterable[Candidate]) -> int:
    return prod(c.data for c in candidates if isinstance(c.data, int) and c.data > 0)


# How many GPUs and nodes the program's own settings ask for, where the launch does not say.


_NOT_TRAINING = re.compile(r"eval|valid|test|infer|worker|actor|ray|resource|vllm", re.IGNORECASE)
_OR_OF_A_GRAPH = normal_name("num_nodes")
_MOST_DEVICES = 4096
"""More than this many GPUs or nodes is something else."""


def find_devices(settings: list[Setting]) -> dict[str, Candidate]:
    """`num_gpus` (of all nodes) and `num_nodes`, where settings state them."""
    names = rules("names")["devices"]
    devices: dict[str, Candidate] = {}
    counts_of_gpus = [
        *_device_counts(settings, names["gpus"], _gpu_count),
        *_device_counts(settings, names["gpu_ids"], _device_ids, named_one=True),
    ]
    gpus = best_candidate(counts_of_gpus)
    # where nothing beside them is told of GPUs, these are nodes of a graph
    left_open = {
        setting.path[:-1]
        for _, setting in settings_named(settings, names["gpus"])
        if isinstance(setting.value.data, str | int) and setting.value.data in ("auto", "-1", -1)
    }
    machines = [
        s
        for s in settings
        if gpus is not None or s.key != _OR_OF_A_GRAPH or s.path[:-1] in left_open
    ]
    counts = _device_counts(machines, names["nodes"], _whole_count)
    nodes = best_candidate(counts)
    if nodes is not None:
        devices["num_nodes"] = replace(nodes, considered=counts)
    if gpus is not None:
        if nodes is not None:  # a program that counts nodes counts the GPUs of each
            gpus.data *= nodes.data
        devices["num_gpus"] = replace(gpus, considered=counts_of_gpus)
    return devices


def _device_counts(
    settings: list[Setting], names: list[str], read: object, named_one: bool = False
) -> list[Candidate]:
    out = []
    for rank, setting in settings_named(settings, names):
        origin = setting.value.origin
        if any(_NOT_TRAINING.search(part) for part in setting.path[:-1]):
            continue
        chosen = setting.explicit or setting.owner == "environment" or setting.source == "config"
        if (named_one and not chosen) or setting.kind == "globals":
            continue  # the first device by default says nothing of the others
        count = read(setting.value) if callable(read) else None
        if count is not None and 0 < count <= _MOST_DEVICES:
            score = prior.devices["named"] + prior.devices["rank"] * rank + source_bonus(origin)
            out.append(Candidate(count, origin, score, rule="setting"))
    return out


def _whole_count(value: Value) -> int | None:
    if isinstance(value.data, str) and re.fullmatch(r"\d{1,4}", value.data):
        return int(value.data)
    return value.data if is_number(value) and isinstance(value.data, int) else None


def _gpu_count(value: Value) -> int | None:
    """A count, or a list of devices: `8`, `"0,1"`, `0-3`, `[0, 1]`."""
    listed = _listed_devices(value)
    return listed if listed is not None else _whole_count(value)


def _device_ids(value: Value) -> int | None:
    """Which devices: `0` is one of them."""
    listed = _listed_devices(value)
    if listed is not None:
        return listed
    if isinstance(value.data, str):
        return 1 if re.fullmatch(r"(cuda:)?\d{1,2}", value.data) else None
    return 1 if is_number(value) and value.data >= 0 else None


def _listed_devices(value: Value) -> int | None:
    data = value.data
    if isinstance(data, list | tuple):
        numbers = [str(item.data).removeprefix("cuda:") for item in data]
        plain = all(re.fullmatch(r"\d{1,3}", number) for number in numbers)
        return len(set(numbers)) if numbers and plain else None
    if isinstance(data, str) and re.search(r"[,-]", data.strip("()[] ")):
        return count_devices(data.strip("()[] ")) or None
    return None
