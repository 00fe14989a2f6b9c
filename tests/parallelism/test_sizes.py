"""Sizes of models and of what they keep in memory, against published and measured numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.devices import (
    bundled_devices,
    find_device,
    parse_device,
)
from schedmate.schedulers.parallelism.models import (
    bundled_models,
    find_model,
    model_from_sizes,
    named_or_sized,
)
from schedmate.schedulers.parallelism.operators import (
    Sizes,
    flops_per_sample,
    layer_operators,
    saved_bytes,
)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt2", 0.124),
        ("gpt2-xl", 1.558),
        ("bert-large", 0.335),
        ("opt-6.7b", 6.658),
        ("llama-2-7b", 6.738),
        ("llama-2-70b", 68.98),
        ("llama-3-8b", 8.03),
        ("mpt-30b", 29.98),
        ("gpt-2.6b", 2.65),
        ("moe-0.69b", 0.69),
        ("moe-10b", 10),
        ("moe-27b", 27),
        ("wide-resnet-1b", 1),
        ("wide-resnet-4b", 4),
        ("wide-resnet-6.8b", 6.8),
    ],
)
def test_a_model_has_its_published_parameters(name: str, billions: float) -> None:
    assert find_model(name).parameters() / 1e9 == pytest.approx(billions, rel=0.06)


# Floats kept of one layer and sample, by tensor degree: Sailor (SOSP'25), training_config llm_info
SAVED = [
    ("opt-350m", 2048, 1, 90181632),
    ("opt-350m", 2048, 2, 48238592),
    ("opt-350m", 2048, 8, 16781312),
    ("gpt-neo-2.7b", 2048, 1, 170401792),
    ("gpt-neo-2.7b", 2048, 2, 96998400),
    ("opt-30b", 2048, 1, 396496896),
    ("opt-30b", 2048, 2, 220205056),
    ("llama-3-8b", 8192, 1, 3087024128),
    ("llama-3-8b", 8192, 4, 973094912),
]


@pytest.mark.parametrize(("name", "sequence", "tensor", "floats"), SAVED)
def test_a_block_keeps_what_was_measured(
    name: str, sequence: int, tensor: int, floats: float
) -> None:
    spec = replace(find_model(name), attention="scores")  # measured without flash attention
    found = saved_bytes(spec, "block", Sizes(1, sequence, "fp32", tensor), "none")
    assert found / 4 == pytest.approx(floats, rel=1e-3)


def test_recomputation_and_flash_attention_keep_less() -> None:
    sizes = Sizes(2, 2048, "bf16", 1)
    whole = saved_bytes(find_model("opt-1.3b"), "block", sizes, "none")
    selective = saved_bytes(find_model("opt-1.3b"), "block", sizes, "selective")
    full = saved_bytes(find_model("opt-1.3b"), "block", sizes, "full")
    assert full < selective < whole
    assert full == 2 * 2048 * 2048 * 2
    flash = replace(find_model("opt-1.3b"), attention="flash")
    assert saved_bytes(flash, "block", sizes, "none") == selective


def test_operators_do_the_work_that_is_counted_for_a_sample() -> None:
    spec = find_model("gpt3-2.7b")
    sizes = Sizes(4, 2048, "fp16", 1)
    forward = sum(
        operator.flops
        for layer in layer_operators(spec, sizes)
        for operator in layer
        if operator.shape is not None
    )
    assert 3 * forward / 4 == pytest.approx(flops_per_sample(spec, 2048), rel=0.02)


def test_tensor_parallelism_divides_the_work() -> None:
    spec = find_model("llama-2-7b")
    work = {
        tensor: sum(
            operator.flops
            for layer in layer_operators(spec, Sizes(1, 4096, "bf16", tensor))
            for operator in layer
            if operator.shape is not None
        )
        for tensor in (1, 8)
    }
    assert work[1] / work[8] == pytest.approx(8, rel=1e-6)


def test_every_device_says_where_its_numbers_are_from() -> None:
    assert {"H100-80", "A100-40", "L20", "A40", "A10", "V100-32", "H200", "B200", "L40S"} <= set(
        bundled_devices()
    )
    for one in bundled_devices().values():
        assert one.source
        assert one.roofline(1e9, "fp16") == one.peak("fp16")
        assert one.roofline(1, "fp16") == one.bandwidth
    assert find_device("NVIDIA A100-SXM4-80GB").name == "A100-80"
    assert find_device("rtx_2080").name == "RTX-2080-Ti"


def test_a_device_can_be_described() -> None:
    found = parse_device("X9:memory=64,bandwidth=2000,bf16=500,link=100")
    assert (found.memory_bytes, found.peak("bf16"), found.link) == (64e9, 500e12, 100e9)
    for wrong in (
        "X9:memory=64",
        "X9",
        ":memory=1,bandwidth=1,bf16=1",
        "X9:memory=a",
        "X:memory=-1,bandwidth=1,fp16=1",
    ):
        with pytest.raises(InputError, match="--device"):
            parse_device(wrong)


def test_unknown_names_get_the_nearest_ones() -> None:
    with pytest.raises(InputError, match="did you mean H100-80"):
        find_device("H100-81")
    with pytest.raises(InputError, match=r"did you mean gpt-2\.7b"):
        find_model("gtp-2.7b")


def test_names_differ_by_their_points() -> None:
    assert find_model("opt_1.3b").hidden != find_model("OPT-13B").hidden
    assert find_model("facebook/opt-1.3b").name == "opt-1.3b"


def test_a_known_name_says_more_than_sizes_do() -> None:
    sizes = {"hidden": 2560, "layers": 32, "heads": 32, "vocabulary": 128256}
    spec, notes = named_or_sized("gpt-neo-2.7b", sizes)
    assert (spec.heads, spec.vocabulary) == (20, 50257)
    assert len(notes) == 2
    other, none = named_or_sized("gpt-neo-2.7b", {**sizes, "layers": 16})
    assert (other.blocks, other.vocabulary, none) == (16, 128256, [])
    mine, none = named_or_sized("ours", sizes)
    assert (mine.heads, none) == (32, [])


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"hidden": 1024}, "lacks layers"),
        ({"hidden": 1024, "layers": 0}, "layers is 0"),
        ({"hidden": 1024, "layers": 2.5}, r"layers is 2\.5"),
        ({"hidden": float("nan"), "layers": 2}, "hidden is nan"),
        ({"hidden": 1000, "layers": 2, "heads": 16}, "not divisible by 16 heads"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        model_from_sizes(sizes)


def test_sizes_are_known_by_the_names_of_configurations() -> None:
    spec = model_from_sizes(
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "gated": True,
            "norm": "rms",
            "biases": False,
        }
    )
    assert sum(spec.block_parameters()) == sum(find_model("llama-3-8b").block_parameters())


def test_all_models_can_be_built() -> None:
    for spec in bundled_models().values():
        assert spec.layers > 2
        assert spec.parameters() > 1e7
