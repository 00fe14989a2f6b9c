"""The model that a plan, a configuration or a job's metadata describes by name and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from schedmate import data
from schedmate.errors import InputError
from schedmate.schedulers.parallelism.models import FLAGS, OPTIONAL, ModelSpec, model, models

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata

LARGEST_SIZE = 10**7

_SIZES = {
    "hidden": ("hidden", "hidden_size", "d_model", "n_embd", "dim"),
    "blocks": ("layers", "num_layers", "n_layer", "num_hidden_layers", "n_layers", "blocks"),
    "heads": ("heads", "num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": (
        *("kv_heads", "n_kv_head", "num_key_value_heads", "num_query_groups", "n_kv_heads"),
    ),
    "ffn": ("ffn", "intermediate_size", "ffn_hidden_size", "d_ff", "n_inner"),
    "vocabulary": ("vocabulary", "vocab_size", "padded_vocab_size"),
    "positions": ("positions", "max_position_embeddings", "n_positions"),
    "experts": ("experts", "num_experts", "num_local_experts", "n_experts"),
}
"""What sizes are called, first our own name."""


def from_sizes(sizes: Mapping[str, Any], name: str = "") -> ModelSpec:
    """A transformer of sizes under our names or those of common configurations.

    Raises `InputError` where hidden size or layers are missing, or a size is not a whole number of
    at least 1.
    """
    given: dict[str, Any] = {}
    for ours, names in _SIZES.items():
        for one in names:
            if sizes.get(one) is not None:
                given[ours] = _whole(one, sizes[one], least=0 if ours in OPTIONAL else 1)
                break
    for flag, kind in FLAGS.items():
        if sizes.get(flag) is not None:
            given[flag] = kind(sizes[flag])
    missing = [
        what for what, ours in (("hidden", "hidden"), ("layers", "blocks")) if ours not in given
    ]
    if missing:
        raise InputError(f"model_sizes lacks {' and '.join(missing)}: state the size of the model")
    given.setdefault("heads", max(1, given["hidden"] // 64))
    if given["hidden"] % given["heads"]:
        raise InputError(
            f"hidden size {given['hidden']} is not divisible by {given['heads']} heads: "
            "correct model_sizes"
        )
    return ModelSpec(name or "custom model", **given)


def named_or_sized(
    name: str | None, sizes: Mapping[str, Any] | None
) -> tuple[ModelSpec, list[str]]:
    """The model of a plan by name or sizes, and notes on it.

    A known name has more information than sizes (vocabulary as trained, activation, dropout), so it
    takes precedence if hidden size and layers agree; else the sizes do.
    """
    known = None
    if name:
        try:
            known = model(name)
        except InputError:
            if not sizes:
                raise
    if not sizes:
        if known is None:
            raise InputError("the plan names no model: give `model` or `model_sizes`")
        return known, []
    sized = from_sizes(sizes, name or "")
    if known is None or (known.hidden, known.blocks) != (sized.hidden, sized.blocks):
        return sized, []
    notes = [
        f"{name} has {ours} {what}, not {theirs} as model_sizes says: the published number is used"
        for what, ours, theirs, said in (
            ("heads", known.heads, sized.heads, _SIZES["heads"]),
            ("vocabulary", known.vocabulary, sized.vocabulary, _SIZES["vocabulary"]),
        )
        if ours != theirs and any(one in sizes for one in said)
    ]
    return known, notes


def from_metadata(metadata: WorkloadMetadata) -> ModelSpec:
    """The model that a job trains, from the metadata of `schedmate analyze`.

    What sizes leave open (gated or not, norms, attention) follows from the architecture in its
    name. Raises `InputError` if there are neither sizes nor a known name.
    """
    section = dict(metadata.sections()["model_config"])
    name = section.get("model_name") or ""
    wide, hidden = section.get("d_ff"), section.get("d_model")
    if isinstance(wide, int) and isinstance(hidden, int) and wide < hidden / 8:
        del section["d_ff"]  # a placeholder: no feed-forward network is so narrow
    try:
        sized = from_sizes(section, name)
    except InputError as without:
        if not name:
            raise InputError(
                "the source code does not say how large the model is: name it with --model, or "
                "give --hidden, --layers and --heads"
            ) from without
        return model(name)
    known = models().get(name)
    if known and (known.hidden, known.blocks) == (sized.hidden, sized.blocks):
        return known
    usual = ModelSpec("")
    stated = {
        key: value
        for key, value in _architecture(name).items()
        if getattr(sized, key) == getattr(usual, key)
    }
    return replace(sized, **stated)


def _architecture(name: str) -> dict[str, Any]:
    """Defaults of the model family in a name; empty: the name has none."""
    document = data.load("schedulers/parallelism/models.yaml")
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for pattern, family in document["architectures"]:
        if re.search(pattern, plain):
            return dict(document["families"][family])
    return {}


def _whole(what: str, value: Any, least: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number != value or not least <= number <= LARGEST_SIZE:
        raise InputError(f"{what} is {value!r}: it must be a whole number of at least {least}")
    return number
