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
    "configs/tagger.jsonnet": """local size = 50;
{
  dataset_reader: { type: "snli", lazy: false },
  train_data_path: "data/snli/train.jsonl", validation_data_path: "data/snli/dev.jsonl",
  model: { type: "esim", encoder: { type: "lstm", input_size: size } },
  trainer: { num_epochs: 75, optimizer: { type: "adam", lr: 4e-4 } },
}""",
    "tagger.cfg": """[paths]
train = "corpus/train.spacy"
[system]
seed = 0
[components]
[components.textcat]
factory = "textcat"
[components.textcat.model]
@architectures = "spacy.TextCatBOW.v2"
[corpora]
[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${paths:train}
[training]
max_steps = 20000
""",
    "bot/config.yml": "language: en\npipeline:\n- name: WhitespaceTokenizer\n"
    "- name: RegexFeaturizer\n- name: CountVectorsFeaturizer\n- name: LexicalSyntacticFeaturizer\n"
    "- {name: DIETClassifier, epochs: 120}\n- {name: ResponseSelector, epochs: 90}\n"
    "policies:\n- {name: TEDPolicy, epochs: 30}\n",
    "conf/pretrain/base.yaml": "# @package _group_\ntask: {_name: audio_pretraining, data: x}\n"
    "optimization: {max_update: 250000, lr: [0.0005]}\nmodel: {_name: wav2vec2}\n",
    "configs/pose.py": """_base_ = 'mmpose::_base_/default_runtime.py'
train_cfg = dict(max_epochs=210, val_interval=10)
model = dict(type='TopdownPoseEstimator', backbone=dict(type='HRNet'))
optim_wrapper = dict(optimizer=dict(type='Adam', lr=5e-4))
train_pipeline = [dict(type='GenerateTarget', dataset='imagenet')]
train_dataloader = dict(batch_size=64, dataset=dict(type='RepeatDataset', times=2, dataset=dict(
    type='CocoDataset', data_root='data/coco/', pipeline=train_pipeline)))
val_dataloader = dict(batch_size=32, dataset=dict(type='CocoDataset', data_root='data/coco/'))
""",
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
            "allennlp train configs/tagger.jsonnet -s out",
            "esim",
            (75, "epoch"),
            "snli",
            "snli",
        ),
        (
            "spacy train tagger.cfg -o out --training.max_steps 900",
            "TextCatBOW",
            (900, "step"),
            "corpus/train.spacy",
            None,
        ),
        (
            "cd bot && rasa train nlu",
            "DIETClassifier",
            (120, "epoch"),
            None,
            None,
        ),
        (
            "fairseq-hydra-train task.data=/data/librispeech --config-dir conf --config-name base",
            "wav2vec2",
            (250000, "step"),
            "librispeech",
            "librispeech",
        ),
        (
            "tune run --nproc_per_node 2 lora_distributed --config llama3_1/8B_lora epochs=2",
            "llama3_1/8B",
            (2, "epoch"),
            None,
            None,
        ),
        (
            "mim train mmpose configs/pose.py --gpus 8 --cfg-options train_cfg.max_epochs=9",
            "HRNet",
            (9, "epoch"),
            "coco",
            "coco",
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
        path.parent.mkdir(parents=True, exist_ok=True)
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
