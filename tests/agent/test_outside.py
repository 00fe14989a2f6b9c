"""Programs of libraries, in repositories that hold nothing but configurations for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

FILES = {
    "README.md": "# fine-tunes\n",
    "configs/chat.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: trl-lib/Capybara\n",
    "configs/recipe.yaml": "model: {_component_: torchtune.models.llama3.lora_llama3_8b}\n"
    "dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}\nepochs: 2\n",
    "configs/lit.yaml": "data: {class_path: litgpt.data.Alpaca2k}\ntrain: {epochs: 4}\n",
}


@pytest.mark.parametrize(
    ("command", "model", "length", "train", "valid"),
    [
        (
            "trl sft --config configs/chat.yaml",
            "Qwen/Qwen2.5-0.5B",
            (3, "epoch"),
            "trl-lib/Capybara",
            None,
        ),
        (
            "yolo train model=yolov8n.pt data=coco8.yaml",
            "yolov8n",
            (100, "epoch"),
            "coco8",
            "coco8",
        ),
        (
            "yolo segment train model=yolo11n-seg.pt data=VOC.yaml epochs=5",
            "yolo11n-seg",
            (5, "epoch"),
            "VOC",
            "VOC",
        ),
        (
            "tune run lora_finetune_single_device --config configs/recipe.yaml",
            "lora_llama3_8b",
            (2, "epoch"),
            "alpaca_cleaned",
            None,
        ),
        (
            "litgpt finetune_lora meta-llama/Llama-2-7b-hf --config configs/lit.yaml",
            "meta-llama/Llama-2-7b-hf",
            (4, "epoch"),
            "Alpaca2k",
            None,
        ),
        (
            "python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 50000",
            "ppo",
            (50000, "step"),
            "CartPole-v1",
            None,
        ),
        (
            "deepspeed --module openrlhf.cli.train_sft --dataset a/b --pretrain c/d --max_epochs 2",
            "c/d",
            (2, "epoch"),
            "a/b",
            None,
        ),
    ],
)
def test_fields(
    tmp_path: Path,
    command: str,
    model: str,
    length: tuple[int, str],
    train: str | None,
    valid: str | None,
) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    found = extract(tmp_path, command).metadata

    assert found.get("model_config.model_name") == model
    told = found.get("training_config.iters"), found.get("training_config.iter_type")
    assert told == length
    assert found.get("dataset_config.train") == train
    assert found.get("dataset_config.valid") == valid


def test_a_default_says_whose_it_is(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("names: {0: cat}\n")

    found = extract(tmp_path, "yolo train model=yolov8n.pt data=data.yaml").metadata

    evidence = found.evidence["training_config.iters"]
    assert (evidence.source, evidence.text) == ("library", "yolo")
