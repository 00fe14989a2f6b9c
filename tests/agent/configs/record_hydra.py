"""Record what hydra-core composes from `conf/`, as the expectation of `test_hydra.py`.

Run by hand in an environment that has hydra-core, which the project itself does not need:
`python tests/agent/configs/record_hydra.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

HERE = Path(__file__).parent
UNKNOWN = "<unknown>"
CASES: list[tuple[str, list[str]]] = [
    ("config", []),
    ("config", ["experiment=vit_imagenet"]),
    ("config", ["experiment=deep/long", "seed=7"]),
    ("config", ["model=vit", "trainer.devices=8", "lr=3e-4"]),
    ("config", ["model/block=basic"]),
    ("config", ["optimizer@model.opt=adamw"]),
    ("config", ["data@dataset=imagenet", "dataset.batch_size=512"]),
    ("config", ["callbacks=ema", "~sched", "~model.tags"]),
    ("config", ["callbacks=[ema,checkpoint]", "must=given"]),
    ("config", ["+db=one", "+db@second=two", "+new.key={a:1,b:[x,'y z',2.5]}"]),
    ("config", ["++trainer.max_steps=500", "++model.depth=null", "name='a, b'"]),
    ("config", ["model.tags=[${seed},c]", "whole=${dataset}", "user=yes", "port=0x10"]),
    ("config", ["~trainer", "seed=-1", "lr=.5", "which=pretrained"]),
    ("config", ["name=a\\,b", 'user="q\\"x"', "port=1_000", "first=", "steps=TRUE"]),
    ("config", ["~tweaks", "hydra.run.dir=elsewhere", "same=http://h:80/p?q"]),
    ("no_self", []),
    ("no_self", ["db@source=two", "optimizer.lr=9"]),
    ("self_last", []),
    ("self_last", ["model=vit", "model/block=basic"]),
    ("global_items", []),
    ("global_items", ["db@_global_=two", "+a.b.lr2=1"]),
    ("nested_override", []),
    ("config", ["experiment=plain"]),
    ("experiments_only", []),
    ("experiments_only", ["experiment=deep/long"]),
    ("must_choose", ["optimizer=adamw", "+lr=1"]),
    ("model/resnet", ["+seed=3"]),
]


def tree(node: Any) -> Any:
    """Plain data of a config, `UNKNOWN` for what cannot be resolved."""
    if isinstance(node, DictConfig):
        return {str(key): item(node, key) for key in node}
    if isinstance(node, ListConfig):
        return [item(node, index) for index in range(len(node))]
    return node


def item(node: Any, key: Any) -> Any:
    """One item of a config."""
    try:
        return tree(node[key])
    except OmegaConfBaseException:
        return UNKNOWN
    except ValueError:  # a resolver that needs a running job
        return UNKNOWN


def main() -> None:
    """Write `hydra_expected.json`."""
    recorded = []
    for name, overrides in CASES:
        with initialize_config_dir(str(HERE / "conf"), version_base="1.3"):
            config = tree(compose(name, overrides))
        if "started" in config:  # a resolver that is run by Hydra, never by schedmate
            config["started"] = UNKNOWN
        recorded.append({"config_name": name, "overrides": overrides, "config": config})
    path = HERE / "hydra_expected.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
