"""The text that stands for a job's metadata."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.similarity import render, spell

pieces = st.sampled_from(["models", "resnet", "50", "v1", "en", "pt", "B", "_", "-", " ", "(", ":"])
joints = st.sampled_from(["", ".", "/", " "])
names = st.one_of(
    st.text(string.printable, max_size=30),
    st.lists(st.tuples(pieces, joints), max_size=8).map(lambda all_: "".join(map("".join, all_))),
)


def metadata(
    model: str | None = None, dataset: str | None = None, task: str | None = None, **more: object
) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": task},
            "training_config": more,
            "dataset_config": {"train": dataset},
        }
    )


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("resnet50", "resnet50"),
        ("ResNet-50", "resnet 50"),
        ("torchvision.models.resnet50", "resnet50"),
        ("google/vit-base", "vit base"),
        ("timm.models.vit_base", "vit base"),
        ("ViT-Base", "vit base"),
        ("meta-llama/Llama-3.1-8B", "llama 3 1 8b"),
        ("EleutherAI/pythia-1.4b", "pythia 1 4b"),
        ("wikitext/wikitext-2-raw-v1", "wikitext 2 raw v1"),
        ("a/b/c", "a b c"),
        ("  COCO 2017 ", "coco 2017"),
        ("yolov5s.pt", "yolov5s"),
        ("alpaca_data.json", "alpaca data"),
        ("resnet18.a1_in1k", "resnet18 a1 in1k"),
        ("Qwen/Qwen2.5-0.5B", "qwen2 5 0 5b"),
        ("models.UNet", "unet"),
        ("src.nets.UNet", "unet"),
        ("allenai/c4", "c4"),
        ("glue/mnli", "mnli"),
        ("wmt14/de-en", "wmt14 de en"),
        ("common_voice/en", "common voice en"),
        ("cnn_dailymail/3.0.0", "cnn dailymail 3 0 0"),
        ("gsm8k/main", "gsm8k main"),
        ("", ""),
        ("---", ""),
        (None, ""),
    ],
)
def test_spell(name: str | None, spelt: str) -> None:
    assert spell(name) == spelt


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (("ResNet-50", "CIFAR-10", "CV"), "model resnet 50; dataset cifar 10; task cv"),
        (("GPT", None, "NLP"), "model gpt; task nlp"),
        ((None, "imagenet", None), "dataset imagenet"),
        (("-", "/", None), ""),
        ((None, None, None), ""),
    ],
)
def test_render(fields: tuple[str | None, str | None, str | None], text: str) -> None:
    assert render(metadata(*fields)) == text


def test_how_it_is_trained_takes_no_part() -> None:
    one = metadata("gpt2", "c4", "NLP", iters=3, iter_type="epoch", lr=0.1, batch_size=8)
    assert render(one) == render(metadata("gpt2", "c4", "NLP", iters=9000, iter_type="step"))


@given(names)
def test_spelling_again_changes_nothing(name: str) -> None:
    assert spell(spell(name)) == spell(name)


@given(names)
def test_outer_space_does_not_matter(name: str) -> None:
    assert spell(f"  {name}\n") == spell(name)


@given(names)
def test_case_does_not_matter(name: str) -> None:
    assert spell(name.upper()) == spell(name.lower()) == spell(name)


@given(names)
def test_only_lower_case_words(name: str) -> None:
    words = spell(name).split(" ")
    assert all(word.isalnum() and word == word.lower() for word in words) or words == [""]


@given(names, names)
def test_a_field_is_left_out_only_when_it_says_nothing(model: str, dataset: str) -> None:
    text = render(metadata(model, dataset))
    assert ("model " in text) == bool(spell(model))
    assert ("dataset " in text) == bool(spell(dataset))
    assert "\n" not in text
