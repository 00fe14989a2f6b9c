"""How the training is set: its batch sizes, data loaders, precision, and the optimiser with its
learning rate.

Which batch size is the headline `batch_size`, per device or of all devices, and the other where it
follows; what calls say where settings do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    Lines,
    is_launched,
    is_number,
    pattern_of,
    rule_argument,
    rules,
    text_of,
)
from schedmate.agent.fields.dataset_names import role_of_arguments
from schedmate.agent.fields.settings import normal_name
from schedmate.agent.interp.objects import Call, Instance
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Origin, Place, Unknown, Value

HEADLINE, PER_DEVICE, GLOBAL = "batch_size", "per_device_batch_size", "global_batch_size"
OF_ONE, OF_ALL, OF_BOTH = "per device", "global", "per device and global"
"""What the headline counts, as its evidence notes it for people."""

COMPUTED = "computed"
"""Rule: it follows from the headline and the devices."""
_NOT_DATA = ("tensor_parallel", "pipeline_parallel")
_ACCUMULATION = "gradient_accumulation_steps"
_Factor = tuple[str, int, Candidate | None]
"""What a per-device batch is multiplied by: its name, its number, and what states it."""


def reconcile_batch_sizes(
    by_field: dict[str, Candidate], trace: Trace, gpus: int | None, processes: int | None
) -> Candidate | None:
    """Say which batch the headline is, and add the other one where it can be computed.

    Args:
        by_field: the training fields, to which the missing batch is added.
        trace: what the program was seen to do.
        gpus: devices of the job; None where that is not known.
        processes: training processes that the launcher starts; None where that is not known.

    Returns:
        The samples of one optimiser step, None where only those of one device are known.
    """
    headline = by_field.get(HEADLINE)
    for part in (GLOBAL, PER_DEVICE):  # what the command states, not a default of other code
        own = by_field.get(part)
        if own is not None and is_launched(own.origin) and headline is not None:
            if headline.source in ("default", "code"):
                headline = by_field[HEADLINE] = own
    if headline is None or not isinstance(headline.data, int):
        return by_field.get(GLOBAL, headline)
    factors = _factors(by_field, gpus)
    kind = _batch_kind(by_field, headline, factors, trace, gpus, processes)
    if kind is not None:
        by_field[HEADLINE] = headline = replace(headline, note=kind)
    if factors and kind in (OF_ONE, OF_ALL):
        _add_other_batch_size(by_field, headline, kind, factors)
    return by_field.get(GLOBAL, headline if kind != OF_ONE else None)


def _batch_kind(
    by_field: dict[str, Candidate],
    headline: Candidate,
    factors: list[_Factor] | None,
    trace: Trace,
    gpus: int | None,
    processes: int | None,
) -> str | None:
    """Which batch the headline is, None where nothing says it."""
    if factors is None:
        return _setting_name(by_field, headline)
    if not factors:
        return OF_BOTH
    count = prod(factor for _, factor, _ in factors)
    several = gpus is not None and gpus > 1
    separate = not several or (processes is not None and processes > 1)
    kind = _setting_name(by_field, headline) or (
        _kind_by_loaders(headline, trace, count) if separate else None
    )
    return kind or (None if several else OF_ONE)  # of several that are accumulated


def _add_other_batch_size(
    by_field: dict[str, Candidate], headline: Candidate, kind: str, factors: list[_Factor]
) -> None:
    """Add the batch that follows from the headline and the devices, if nothing states it."""
    count = prod(factor for _, factor, _ in factors)
    parts = [f"{n} {name}" for name, n, _ in factors]
    if kind == OF_ONE and GLOBAL not in by_field:
        formula = " x ".join([f"{headline.data} per device", *parts])
        by_field[GLOBAL] = _computed_batch_size(headline, headline.data * count, formula, factors)
    elif kind == OF_ALL and PER_DEVICE not in by_field and headline.data % count == 0:
        formula = " / ".join([f"{headline.data} global", *parts])
        by_field[PER_DEVICE] = _computed_batch_size(
            headline, headline.data // count, formula, factors
        )


def _setting_name(found: dict[str, Candidate], headline: Candidate) -> str | None:
    """What the setting that the headline is from is called."""
    for name, kind in ((PER_DEVICE, OF_ONE), (GLOBAL, OF_ALL)):
        if name in found and found[name].origin == headline.origin:
            return kind
    return None


def _kind_by_loaders(headline: Candidate, trace: Trace, count: int) -> str | None:
    """Which it is by what the loaders of a process with one device are given."""
    loaded = {
        size.data
        for event in trace.calls
        if (size := loader_batch_size(event)) is not None and size.number is not None
    }
    if headline.data in loaded:
        return OF_ONE
    shared = headline.data % count == 0 and headline.data // count in loaded
    return OF_ALL if shared else None


def _factors(by_field: dict[str, Candidate], gpus: int | None) -> list[_Factor] | None:
    """What a per-device batch is multiplied by, none of them 1; None where one is not known."""
    if gpus is None:
        return None
    factors: list[_Factor] = []
    accumulation = by_field.get(_ACCUMULATION)
    if accumulation is not None:
        if not isinstance(accumulation.data, int) or accumulation.data < 1:
            return None
        factors.append(("accumulation steps", accumulation.data, accumulation))
    split = [by_field[name].data for name in _NOT_DATA if name in by_field]
    one_model = prod(size for size in split if isinstance(size, int) and size > 0)
    devices = max(1, gpus)
    if devices % one_model:
        return None
    factors.append(("data-parallel devices", devices // one_model, None))
    return [factor for factor in factors if factor[1] != 1]


def _computed_batch_size(
    headline: Candidate, data: int, formula: str, factors: list[_Factor]
) -> Candidate:
    origin = (headline.origin or Origin("code"))._replace(computed=formula)
    scores = [headline.score, *(part.score for _, _, part in factors if part is not None)]
    return Candidate(data, origin, min(scores), rule=COMPUTED)


# What the program's calls say of batch size and precision.


_PRECISION = (
    (re.compile(r"bf16|bfloat16", re.IGNORECASE), "bf16"),
    (re.compile(r"fp8|float8", re.IGNORECASE), "fp8"),
    (re.compile(r"^(16|16-mixed|fp16|float16|half|16-true)$", re.IGNORECASE), "fp16"),
    (re.compile(r"^(32|32-true|fp32|float32|full|no|highest)$", re.IGNORECASE), "fp32"),
    (re.compile(r"amp", re.IGNORECASE), "amp"),
)
AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")

LARGEST_NUMBER = 1e12
"""More than any batch, sequence, rate or size; infinity and 1e308 stand for no limit."""
Found = dict[str, Candidate]


def add_called(trace: Trace, by_field: Found) -> None:
    """Add to `found` what calls state and settings did not."""
    trains = training_loaders(trace)
    for event in trace.calls:
        _add_batch_size(event, by_field, trains)
        if "precision" not in by_field:
            _add_cast(event, by_field)


def precision_name(value: Value) -> str | None:
    """A precision setting in the project's words: fp32, fp16, bf16, amp, tf32, fp8."""
    text = str(value.data) if isinstance(value.data, int) else text_of(value)
    if text is None or isinstance(value.data, bool):
        return None
    for pattern, name in _PRECISION:
        if pattern.search(text.rsplit(".", 1)[-1]):
            return name
    return None


def call_place(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _add_number(found: Found, field: str, value: Value | None, place: Origin, score: float) -> None:
    if field not in found and is_number(value) and 0 < value.data <= LARGEST_NUMBER:
        found[field] = Candidate(value.data, value.origin or place, score)


def _add_batch_size(event: CallEvent, by_field: Found, trains: Sequence[CallEvent]) -> None:
    if is_loader(event):
        size, score = loader_batch_size(event), prior.call["loader"]
        if not any(event is one for one in trains):
            return
    elif event.path.endswith(".fit"):
        size, score = event.kwargs.get("batch_size"), prior.call["fit"]
    elif event.cls is not None and re.search(r"Loader|Dataset", event.cls.name):
        size, score = event.kwargs.get("batch_size"), prior.call["own loader"]
    else:
        return
    if size is not None and not is_held_out_loader(event, size):
        _add_number(by_field, "batch_size", size, call_place(event), score)


def _add_cast(event: CallEvent, by_field: Found) -> None:
    if event.path == "torch.nn.Module.to":
        cast = precision_name(event.args[0])
        if cast in ("bf16", "fp16"):
            by_field["precision"] = Candidate(cast, call_place(event), prior.call["cast"])
    elif event.path == "apex.amp.initialize" and event.certain:
        level = rule_argument(event, ["opt_level", 2])
        if level is None or level.data != "O0":
            by_field["precision"] = Candidate("amp", call_place(event), prior.call["apex"])
    elif event.path in AUTOCAST:
        enabled = event.kwargs.get("enabled")
        if enabled is None or enabled.data is not False:
            kind = event.kwargs.get("dtype")
            name = (precision_name(kind) if kind is not None else None) or "amp"
            by_field["precision"] = Candidate(name, call_place(event), prior.call["cast"])


# Which of a program's data loaders feeds the training.


_LOADERS = ("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader")
_EVALUATES = re.compile(r"(^|_)(val|valid|eval|test|dev|infer|generat)", re.IGNORECASE)
_AROUND = 3
"""Datasets inside each other that are looked into: `Subset(CIFAR10(train=False), ids)`."""


def is_loader(event: CallEvent) -> bool:
    """Whether a call makes a data loader."""
    return event.path in _LOADERS


def loader_batch_size(event: CallEvent) -> Value | None:
    """The batch size that a data loader is made with."""
    return rule_argument(event, ["batch_size", 1]) if is_loader(event) else None


def training_loaders(trace: Trace) -> list[CallEvent]:
    """The loaders that may feed the training: those that say so, else those that deny nothing."""
    made = [event for event in trace.calls if is_loader(event)]
    roles = [_loader_role(event) for event in made]
    wanted = True if True in roles else None
    return [event for event, role in zip(made, roles, strict=True) if role is wanted]


def is_held_out_loader(event: CallEvent, size: Value) -> bool:
    """Whether a loader is for evaluation: by its name, or as it gives one after the other."""
    if "train" in event.target.lower():
        return False
    shuffled = event.kwargs.get("shuffle")
    in_order = size.data == 1 and (shuffled is None or shuffled.data is False)
    return in_order or any(_EVALUATES.search(name) for name in (event.target, event.function))


def _loader_role(event: CallEvent) -> bool | None:
    """Whether a loader is for training, None where nothing says so."""
    data = rule_argument(event, ["dataset", 0])
    told = _role_of_data(data, 0) if data is not None else None
    if told is not None:
        return told
    shuffled = event.kwargs.get("shuffle")
    return True if shuffled is not None and shuffled.data is True else None


def _role_of_data(value: Value, depth: int) -> bool | None:
    """What a dataset was made for, by its arguments: `train=False`, `split="val"`."""
    data = value.data
    if not isinstance(data, Call | Instance) or depth > _AROUND:
        return None
    arguments = data.kwargs if isinstance(data, Call) else data.attrs
    evaluates = role_of_arguments(arguments)
    if evaluates is not None:
        return not evaluates
    inner = data.args if isinstance(data, Call) else list(data.attrs.values())
    roles = (_role_of_data(item, depth + 1) for item in inner[:4])
    return next((role for role in roles if role is not None), None)


# The optimiser and its learning rate: a pair that one call of the program is given.


_NAMED = 3
"""Further optimisers that are named."""
_OF_TIME = re.compile(r"step|iter|epoch|warm|sched|decay|anneal|cos|progress", re.IGNORECASE)
"""What a rate that changes while the program trains is computed from."""
_OPTIMIZER = pattern_of("training.optimizer")
_ALIKE = {"GradientDescent": "SGD"}
_RATE_FIRST = re.compile(r"(keras|tensorflow|optax|mlx)\.")
"""Optimisers that are not given the parameters when they are made."""
_LIBRARYS_BASE = re.compile(r"torch\.optim\.(\w+\.)*[A-Z]\w*|keras\.(\w+\.)*Optimizer")
"""What optimisers of a repository's own are classes of."""


class MadeOptimizer(NamedTuple):
    """An optimiser that a call makes, with the learning rate that it is given."""

    event: CallEvent
    name: str
    origin: Origin
    score: float
    rate: Value | None
    rate_score: float


def is_optimizer(name: str) -> bool:
    """Whether a class or function is named after an optimiser."""
    plain = name.lower() in ("optimizer", "optimizers", "optim")
    return not plain and bool(_OPTIMIZER.search(name))


def makes_optimizer(event: CallEvent) -> bool:
    """Whether this makes one of a library's optimisers."""
    return re.match(rules("calls")["optimizer"], event.path) is not None


def _makes_own(event: CallEvent) -> bool:
    """Whether this makes an optimiser of the repository's own: by its base, or a name it gets."""
    if event.cls is None:
        return False
    name = event.cls.name
    if not is_optimizer(name) or name.lower().endswith("optimizer"):
        return False
    return any(map(_LIBRARYS_BASE.fullmatch, event.cls.external_bases())) or bool(
        re.search(r"(^|_)optim(izer)?s?\d*$", event.target)
    )


def made_optimizers(trace: Trace) -> list[MadeOptimizer]:
    """The optimisers that are made, less those that are only put around another one."""
    makers = [one for event in trace.calls if (one := _made_optimizer(event)) is not None]
    results = {id(one.event.result.data) for one in makers if one.event.result is not None}
    return [
        one
        for one in makers
        if not any(
            id(value.data) in results for value in (*one.event.args, *one.event.kwargs.values())
        )
    ]


def _made_optimizer(event: CallEvent) -> MadeOptimizer | None:
    here = call_place(event)
    if makes_optimizer(event):
        name = classes.last_part(event.path).removesuffix("Optimizer")
        name = event.cls.name if event.cls is not None else _ALIKE.get(name, name)
        origin = event.result.origin if event.result is not None else None
        score = prior.call.sure("optimiser", event.certain)
        return MadeOptimizer(event, name, origin or here, score, _given_rate(event), score)
    if event.cls is not None:
        score = prior.call.sure("own optimiser", event.certain)
        rate = event.kwargs.get("lr")
        rate_score = prior.call["own optimiser rate"]
        made = MadeOptimizer(event, event.cls.name, here, score, rate, rate_score)
        return made if _makes_own(event) else None
    named = rule_argument(event, ["optimizer", 0]) if event.path.endswith(".compile") else None
    if named is not None and isinstance(named.data, str) and is_optimizer(named.data):
        score = prior.call["compile"]  # `model.compile("adam", lr=1e-3)`
        rate = rule_argument(event, ["lr", "learning_rate"])
        return MadeOptimizer(event, named.data, named.origin or here, score, rate, score)
    return None


def _given_rate(event: CallEvent) -> Value | None:
    """The learning rate that an optimiser is given, or else its first group of parameters."""
    given = rule_argument(event, ["lr", "learning_rate", 0 if _RATE_FIRST.match(event.path) else 1])
    if given is not None or not event.args:
        return given
    groups = event.args[0].data
    first = groups[0].data if isinstance(groups, list) and groups else None
    return first.get("lr") if isinstance(first, dict) else None


def add_optimizer(makers: Sequence[MadeOptimizer], by_field: dict[str, Candidate]) -> None:
    """Add the optimiser, which one that is certainly made says before a default does, and its rate.

    Of several optimisers the first that is surely made is named.
    """
    first = max(makers, key=lambda one: one.score, default=None)
    if first is None:
        return
    stated = by_field.get("optimizer")
    if stated is None or (
        stated.score < first.score
        and makes_optimizer(first.event)
        and not _is_named_by_launch(stated)
    ):
        by_field["optimizer"] = Candidate(first.name, first.origin, first.score)
    pair = _named_pair(makers, by_field)
    rate = pair.rate if pair is not None else None
    if (
        pair is not None
        and "lr" not in by_field
        and is_number(rate)
        and 0 < rate.data <= LARGEST_NUMBER
    ):
        by_field["lr"] = Candidate(rate.data, rate.origin or pair.origin, pair.rate_score)


def _is_named_by_launch(held: Candidate) -> bool:
    """Whether a configuration or the command names the optimiser, whatever else is made."""
    return held.source in (*EXPLICIT, "config") and is_optimizer(str(held.data))


def _named_pair(
    makers: Sequence[MadeOptimizer], by_field: dict[str, Candidate]
) -> MadeOptimizer | None:
    """The call that makes the optimiser that is named: of several, with the rate that is stated.

    One by another name is that if the program makes no more than one kind.
    """
    chosen, stated = by_field.get("optimizer"), by_field.get("lr")
    name = normal_name(str(chosen.data)) if chosen is not None else ""
    alike = [one for one in makers if normal_name(one.name) == name]
    if not alike and len({one.name for one in makers}) == 1:
        alike = list(makers)
    so_given = (one for one in alike if stated is not None and _has_rate(one, stated))
    return next(so_given, max(alike, key=lambda one: one.score, default=None))


def compare_optimizers(
    makers: Sequence[MadeOptimizer], by_field: dict[str, Candidate], lines: Lines
) -> None:
    """Say which other optimisers there are, and put the rate that the named one is given.

    `lines` is the repository, where the computation of a rate is looked up.
    """
    certain = [one for one in makers if one.event.certain]
    chosen, stated = by_field.get("optimizer"), by_field.get("lr")
    if chosen is not None:
        by_field["optimizer"] = _with_other_optimizers(chosen, certain)
    pair = _named_pair(certain, by_field)
    if stated is not None and pair is not None:
        by_field["lr"] = _computed_rate(_rate_of_named(stated, pair, certain), pair, lines)


def _with_other_optimizers(chosen: Candidate, makers: list[MadeOptimizer]) -> Candidate:
    """The optimiser, its note naming those of other kinds that the program makes too."""
    names = {normal_name(str(chosen.data))}
    others = []
    for one in makers:
        if normal_name(one.name) not in names:
            names.add(normal_name(one.name))
            others.append(f"{one.name} ({one.event.site.file}:{one.event.site.line})")
    if not others or normal_name(str(chosen.data)) not in {normal_name(one.name) for one in makers}:
        return chosen
    return replace(chosen, note=f"also {', '.join(others[:_NAMED])}")


def _rate_of_named(
    stated: Candidate, pair: MadeOptimizer, makers: list[MadeOptimizer]
) -> Candidate:
    """The stated rate, or that of the named optimiser if another one is given what is stated."""
    if pair.rate is None or _has_rate(pair, stated):
        return stated
    other = next((one for one in makers if one is not pair and _has_rate(one, stated)), None)
    if other is None and stated.source != "default":
        return stated
    if is_number(pair.rate) and 0 < pair.rate.data <= LARGEST_NUMBER:
        return Candidate(pair.rate.data, pair.rate.origin or pair.origin, pair.rate_score)
    if other is None:
        return stated
    return _unknown_candidate(pair.origin, f"{stated.data} is the learning rate of {other.name}")


def _computed_rate(stated: Candidate, pair: MadeOptimizer, lines: Lines) -> Candidate:
    """What the optimiser is given, where that is computed from the rate that a setting states.

    Null where a part of the computation is not known, with the line that computes it. A schedule
    starts from the rate that is stated.
    """
    rate = pair.rate
    origin = rate.origin if rate is not None else None
    if rate is None or origin is None or not isinstance(origin.computed, Place):
        return stated
    if not _has_rate(pair, stated):
        return stated
    if rate.number is not None:
        if rate.number <= 0 or rate.number == stated.data:
            return stated
        return replace(stated, data=rate.number, origin=origin)
    if not isinstance(rate.data, Unknown) or _OF_TIME.search(lines.at(origin.computed) or ""):
        return stated
    line = Origin("code", origin.computed.file, origin.computed.line)
    return _unknown_candidate(line, f"computed from {stated.data}, where not all parts are known")


def _unknown_candidate(origin: Origin, note: str) -> Candidate:
    return Candidate(None, origin, prior.further["rate of unknown parts"], note, doubted=True)


def _has_rate(one: MadeOptimizer, stated: Candidate) -> bool:
    """Whether an optimiser is given the stated rate, or what is computed from it."""
    given = one.rate.origin if one.rate is not None else None
    place = stated.origin
    return given is not None and place is not None and given.operand() == place.operand()
