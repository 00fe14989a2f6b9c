"""Which words name a model, and which only say what is done or what is to be filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.fields.model_built import model_name
from schedmate.agent.react.extractor import DOUBTFUL_BELOW
from schedmate.agent.static import extract


@pytest.mark.parametrize(
    "text",
    ["[gnn-model]", "<model>", "algo_name", "LLAMA_7B_PATH", "random", "factory", "text",
     "the model checkpoint to start from", "runs/best_real.pt", "runs/network-snapshot-000000.pkl"],
)  # fmt: skip
def test_what_names_no_model(text: str) -> None:
    assert model_name(text) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("checkpoints/progen2-small", "progen2-small"),
        ("facebook/opt-125m", "facebook/opt-125m"),
        ("weights/best_resnet50.pth", "best_resnet50"),
        ("yolov8n_quant.tflite", "yolov8n_quant"),
        ("resnet101-v2.caffemodel", "resnet101-v2"),
    ],
)
def test_names_out_of_places(text: str, name: str) -> None:
    assert model_name(text) == name


_NAMELESS = """
import torch

network = make()
optimizer = torch.optim.Adam(network.parameters())
for epoch in range(3):
    for batch in loader:
        network(batch).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train_bert_toy_task.py", "bert"),
        ("llama_data.py", "llama"),
        ("train_controlnet_flax.py", "controlnet"),
        ("resnet50_cifar.py", "resnet50"),
        ("run_transformer_xl_base.py", "transformer_xl_base"),
        ("sagan_pytorch.py", "sagan"),
        ("td3_bc.py", "td3_bc"),
        ("run_nerf.py", "nerf"),
        ("train_mnist.py", None),
        ("run_language_modeling.py", None),
        ("partition_graph.py", None),
        ("main_semantic3d.py", None),
        ("train_align.py", None),
    ],
)
def test_the_model_in_a_script_s_name(tmp_path: Path, script: str, name: str | None) -> None:
    (tmp_path / script).write_text(_NAMELESS)
    found = extract(tmp_path, f"python {script}").metadata.model.model_name
    assert found == name


def test_a_variable_that_is_not_set_is_not_the_model(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs')\n"
        "args, rest = p.parse_known_args()\nargs = p.parse_args(rest)\n" + _NAMELESS
    )
    found = extract(tmp_path, "python train.py --model $MODEL --epochs 3")
    assert found.metadata.model.model_name is None


@pytest.mark.parametrize(
    ("program", "command", "name"),
    [
        # what a library's settings were given, a launcher's function, a checkpoint's class
        (("from trl import PPOConfig\nfrom transformers import AutoModel\n"
         "config = PPOConfig(model_name='bert-base-uncased')\n"
         "model = AutoModel.from_pretrained(config.model_name)\n"),
         "train.py", "bert-base-uncased"),
        (("import gorilla\nfrom torch import nn\nclass PointNet(nn.Module):\n    pass\n"
         "def main(width):\n    model = PointNet()\n"
         "gorilla.launch(main, 1, args=(3,))\n"), "train.py", "PointNet"),
        (("import pytorch_lightning as pl\nclass ImageGPT(pl.LightningModule):\n    pass\n"
         "model = ImageGPT.load_from_checkpoint('x.ckpt')\npl.Trainer().fit(model)\n"),
         "train.py", "ImageGPT"),
        ("class Verifier:\n    pass\nmodel = Verifier()\n", "train.py", "Verifier"),
        ("import sys\nprint(sys.argv)\n", "train.py ppo --env Hopper-v2", "ppo"),
        ("import engine\nengine.go()\n", "train.py --cfg configs/dbnet_r50_icdar.yaml", "dbnet"),
    ],
)  # fmt: skip
def test_names_that_take_a_step_more(tmp_path: Path, program: str, command: str, name: str) -> None:
    (tmp_path / "train.py").write_text(program)
    assert extract(tmp_path, f"python {command}").metadata.model.model_name == name


def test_a_famous_network_goes_before_the_backbone_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nfrom torch import nn\n"
        "class DeepLab(nn.Module):\n    def __init__(self, backbone):\n        super().__init__()\n"
        "p = argparse.ArgumentParser()\np.add_argument('--backbone', default='resnet')\n"
        "args = p.parse_args()\nmodel = DeepLab(backbone=args.backbone)\n"
    )
    found = extract(tmp_path, "python train.py --backbone resnet").metadata.model.model_name
    assert found == "DeepLab"


def test_a_class_of_a_plain_file_keeps_its_name(tmp_path: Path) -> None:
    network = "from torch import nn\nclass Network(nn.Module):\n    pass\n"
    for file in ("model_search.py", "policy_value_net_pytorch.py"):
        (tmp_path / file).write_text(network)
    for module, name in (
        ("model_search", "Network"),
        ("policy_value_net_pytorch", "policy_value_net"),
    ):
        (tmp_path / "train.py").write_text(f"from {module} import Network\nmodel = Network()\n")
        assert extract(tmp_path, "python train.py").metadata.model.model_name == name


def test_the_class_that_loads_a_model_names_it_where_the_path_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nfrom transformers import AutoModelForCausalLM, BertForSequenceClassification\n"
        "model = BertForSequenceClassification.from_pretrained(os.environ['MODEL'])\n"
    )
    found = extract(tmp_path, "python train.py").metadata
    assert found.model.model_name == "BertForSequenceClassification"
    assert found.evidence["model_config.model_name"].confidence < DOUBTFUL_BELOW


@pytest.mark.parametrize("kind", ["transformer", "embedding"])
def test_a_kind_of_encoder_does_not_name_a_nameless_model(tmp_path: Path, kind: str) -> None:
    (tmp_path / "models" / "bert").mkdir(parents=True)
    (tmp_path / "models" / "bert" / "base.json").write_text(f'{{"encoder": "{kind}"}}')
    program = _NAMELESS.replace(
        "network = make()", "network = Model(encoders[args.encoder](args))"
    ).replace(
        "import torch\n",
        "import argparse\nimport json\nimport torch\n\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--config_path')\n"
        "args = parser.parse_args()\n"
        "for key, value in json.load(open(args.config_path)).items():\n"
        "    setattr(args, key, value)\n\n"
        "class Encoder(torch.nn.Module):\n    pass\n\n"
        f"encoders = {{'{kind}': Encoder}}\n\n"
        "class Model(torch.nn.Module):\n    pass\n",
    )
    (tmp_path / "pretrain.py").write_text(program)
    command = "python pretrain.py --config_path models/bert/base.json"
    assert extract(tmp_path, command).metadata.model.model_name == "bert"


def test_a_size_beside_the_function_that_builds_it_names_the_variant(tmp_path: Path) -> None:
    program = _NAMELESS.replace(
        "network = make()",
        """
class PoseResNet(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()

def get_net(layers):
    model = PoseResNet(layers)
    return model

factory = {"resdcn": get_net}

def create_model(arch):
    layers = int(arch[arch.find("_") + 1:])
    return factory[arch[:arch.find("_")]](layers)

parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="resdcn_34")
args = parser.parse_args()
network = create_model(args.arch)
""",
    ).replace("import torch\n", "import argparse\nimport torch\n", 1)
    (tmp_path / "train.py").write_text(program)
    found = extract(tmp_path, "python train.py --arch resdcn_18").metadata.model.model_name
    assert found == "resdcn_18"


def test_a_nameless_class_is_named_by_the_folder_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "dreamerv3").mkdir()
    (tmp_path / "dreamerv3" / "main.py").write_text(
        "class Agent:\n    pass\nagent = Agent()\nagent.train()\n"
    )
    found = extract(tmp_path, "python dreamerv3/main.py").metadata.model.model_name
    assert found == "dreamerv3"
