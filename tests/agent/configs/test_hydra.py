"""Hydra composition against what hydra-core composed from the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tree_leaves import leaves

from schedmate.agent.configs.hydra import HydraResult, compose_hydra, parse_command_line
from schedmate.agent.configs.trees import ConfigError
from schedmate.agent.values import Origin, Unknown, Value

HERE = Path(__file__).parent
CONF = HERE / "conf"
RECORDED = json.loads((HERE / "hydra_expected.json").read_text(encoding="utf-8"))


def tokens(*overrides: str) -> list[Value]:
    return [Value(text, Origin("command", text=text)) for text in overrides]


def tree(value: Value) -> Any:
    if isinstance(value.data, dict):
        return {str(key): tree(item) for key, item in value.data.items()}
    if isinstance(value.data, list):
        return [tree(item) for item in value.data]
    return "<unknown>" if isinstance(value.data, Unknown) else value.data


def compose(name: str, *overrides: str) -> HydraResult:
    return compose_hydra(CONF, name, tokens(*overrides), HERE)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    "case", RECORDED, ids=lambda case: " ".join([case["config_name"], *case["overrides"]])
)
def test_composes_what_hydra_composes(case: dict[str, Any]) -> None:
    result = compose(case["config_name"], *case["overrides"])
    assert json.dumps(tree(result.config), sort_keys=True) == json.dumps(
        case["config"], sort_keys=True
    )


def test_choices_and_origins() -> None:
    result = compose("config", "experiment=vit_imagenet", "trainer.devices=8")
    choices = {group: choice.plain() for group, choice in result.choices.items()}
    assert choices["model"] == "vit"
    assert choices["data@dataset"] == "imagenet"
    assert choices["callbacks"] == "none"
    assert choices["hydra/job_logging"] == "disabled"
    assert choices["logger"] is None
    assert result.choices["experiment"].origin == Origin("command", text="experiment=vit_imagenet")
    config = result.config.data
    model_option = result.choices["model"].origin
    assert model_option is not None
    assert (model_option.file, model_option.line) == ("conf/experiment/vit_imagenet.yaml", 3)
    assert config["trainer"].data["devices"].origin == Origin("command", text="trainer.devices=8")
    epochs = config["trainer"].data["max_epochs"].origin
    assert (epochs.source, epochs.file, epochs.line) == (
        "config",
        "conf/experiment/vit_imagenet.yaml",
        10,
    )


def test_a_resolved_interpolation_keeps_the_origin_of_the_value_it_names() -> None:
    config = compose("config").config.data
    lr = config["optimizer"].data["lr"]
    assert (lr.data, lr.origin.file, lr.origin.line) == (0.001, "conf/config.yaml", 16)
    assert config["work_dir"].data == Unknown("${hydra:runtime.cwd}/out")
    assert config["started"].data == Unknown("${now:%Y-%m-%d}")
    assert config["sched"].data["total"].data == Unknown("${eval:'${trainer.max_epochs} * 10'}")
    assert config["must"].data == Unknown("???")


def test_every_leaf_has_an_origin() -> None:
    result = compose("config", "experiment=deep/long", "+db=one", "a.b=[1,{c:2}]")
    found = list(leaves(result.config))
    assert len(found) > 40
    for path, leaf in found:
        assert leaf.origin is not None, path
        assert leaf.origin.source in ("config", "command"), path
        if leaf.origin.source == "config":
            assert leaf.origin.line is not None, path


def test_hydra_node_is_kept_apart() -> None:
    result = compose("config", "hydra.launcher.nodes=2")
    assert "hydra" not in result.config.data
    assert result.hydra.plain()["launcher"] == {"nodes": 2}
    assert result.hydra.plain()["run"]["dir"] == "out/resnet50-cifar10-s1"


def test_environment_given_by_the_launch_wins_over_the_default() -> None:
    env = {"SCHEDMATE_TEST_NOBODY": Value("alice", Origin("environment", text="X=alice"))}
    config = compose_hydra(CONF, "config", [], HERE, env=env).config.data
    assert config["user"].data == "alice"
    assert config["user"].origin.source == "environment"


def test_command_line_flags_among_the_overrides() -> None:
    line = parse_command_line(
        tokens(
            "--config-path", "other", "a=1", "--config-name=main", "-m", "-cd", "extra", "--fast"
        )
    )

    assert (line.config_path, line.config_name, line.config_dir) == ("other", "main", "extra")
    assert [override.text for override in line.overrides] == ["a=1"]
    assert any("--fast" in text for text in line.warnings)


def test_more_directories_hold_options(tmp_path: Path) -> None:
    files = {
        "conf/config.yaml": "defaults: [{model: a}]\n",
        "conf/model/a.yaml": "n: 1\n",
        "extra/model/c.yaml": "n: 3\n",
    }
    write(tmp_path, files)
    arguments = tokens("--multirun", "--config-dir", "extra", "model=c")

    result = compose_hydra(
        tmp_path / "conf", "config", arguments, tmp_path, search_path=[tmp_path / "extra"]
    )

    assert result.config.plain() == {"model": {"n": 3}}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=5,6,7", 5),
        ("seed=choice(8, 9)", 8),
        ("seed=range(3,10)", 3),
        ("seed=range(10)", 0),
        ("seed='5,6'", "5,6"),
    ],
)
def test_sweeps_take_the_first_value(override: str, expected: object) -> None:
    result = compose("config", override)
    assert result.config.data["seed"].data == expected
    assert any("sweeps" in text for text in result.warnings) == ("'" not in override)


@pytest.mark.parametrize(
    "text", ["interval(0, 1)", "tag(t, choice(4, 5))", "shuffle([2,1])", "int(3.7)"]
)
def test_other_functions_of_the_grammar_are_unknown(text: str) -> None:
    assert compose("config", f"lr={text}").config.data["lr"].data == Unknown(text)


def test_structured_configs_from_the_config_store(tmp_path: Path) -> None:
    write(tmp_path, {"conf/config.yaml": "defaults: [schema, {opt: adam}, _self_]\nsteps: 5\n"})
    at = Origin("default", "train.py", 3)
    structured = {
        "schema": Value({"steps": Value("???", at), "seed": Value(1, at)}, at),
        "opt/adam": Value({"lr": Value(0.1, at)}, at),
        "opt/lion@_global_.best": Value({"lr": Value(0.2, at)}, at),
    }
    result = compose_hydra(tmp_path / "conf", "config", [], tmp_path, structured)
    assert result.config.plain() == {"steps": 5, "seed": 1, "opt": {"lr": 0.1}}
    assert result.config.data["seed"].origin == at
    lion = compose_hydra(tmp_path / "conf", "config", tokens("opt=lion"), tmp_path, structured)
    assert lion.config.plain()["best"] == {"lr": 0.2}
    assert lion.warnings == []


def test_a_file_lies_upon_a_stored_schema_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"conf/config.yaml": "a: 1\n"})
    structured = {"config": Value({"a": Value("???"), "b": Value(2)})}
    result = compose_hydra(tmp_path / "conf", "config", [], tmp_path, structured)
    assert result.config.plain() == {"a": 1, "b": 2}


def test_search_path(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "conf/config.yaml": (
                "defaults: [{model: far}, {data: near}]\n"
                "hydra: {searchpath: ['pkg://lib.conf', 'file://more', 'pkg://gone']}\n"
            ),
            "lib/conf/model/far.yaml": "n: 1\n",
            "more/data/near.yaml": "d: 2\n",
            "last/model/far.yaml": "n: 9\n",
        },
    )
    result = compose_hydra(
        tmp_path / "conf", "config", [], tmp_path, search_path=[tmp_path / "last"]
    )
    assert result.config.plain() == {"model": {"n": 9}, "data": {"d": 2}}
    assert [text for text in result.warnings if "pkg://gone" in text]


def test_what_the_repository_lacks_is_a_warning(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "conf/config.yaml": (
                "defaults:\n  - _self_\n  - model: gone\n  - opt: ???\n  - 3: x\n  - [a]\n"
                "  - {opt: off}\n  - override hydra/launcher: submitit_slurm\n"
                "  - override nothing: x\na: 1\n"
            ),
            "conf/opt/broken.yaml": "a: [\n",
        },
    )
    conf = tmp_path / "conf"
    result = compose_hydra(conf, "config", tokens("b=2", "~c", "odd", "=x"), tmp_path)
    assert result.config.plain() == {"a": 1, "b": 2}
    for part in ("model/gone", "'opt' has no option", "submitit_slurm", "nothing", "'odd'", "~c"):
        assert any(part in text for text in result.warnings), part
    broken = compose_hydra(conf, "config", tokens("opt=broken"), tmp_path)
    assert any("conf/opt/broken.yaml:2" in text for text in broken.warnings)


def test_a_group_known_only_to_code_is_still_a_choice(tmp_path: Path) -> None:
    write(tmp_path, {"conf/config.yaml": "defaults: [{opt: adam}]\n"})
    result = compose_hydra(tmp_path / "conf", "config", tokens("opt=sgd"), tmp_path)
    assert result.choices["opt"].data == "sgd"
    assert result.config.plain() == {}


def test_an_option_of_a_group_no_list_names_is_added_with_a_warning() -> None:
    result = compose("no_self", "model=vit")
    assert result.config.plain()["model"]["name"] == "vit_b_16"
    assert any("+model=" in text for text in result.warnings)


@pytest.mark.parametrize(
    "files",
    [
        {"config.yaml": "defaults: [config]\nx: 1\n"},
        {
            "config.yaml": "defaults: [{g: a}]\nx: 1\n",
            "g/a.yaml": "defaults: [b]\n",
            "g/b.yaml": "defaults: [a]\n",
        },
    ],
)
def test_cycles_are_cut(tmp_path: Path, files: dict[str, str]) -> None:
    result = compose_hydra(write(tmp_path, files), "config", [], tmp_path)
    assert result.config.data["x"].data == 1
    assert any("leads back to itself" in text for text in result.warnings)


def test_defaults_that_multiply_are_stopped(tmp_path: Path) -> None:
    files = {f"c{i}.yaml": f"defaults: [c{i + 1}@a, c{i + 1}@b]\n" for i in range(30)}
    result = compose_hydra(write(tmp_path, {**files, "c30.yaml": "x: 1\n"}), "c0", [], tmp_path)
    assert any("too large" in text for text in result.warnings)


def test_primary_config_missing_or_broken(tmp_path: Path) -> None:
    write(tmp_path, {"bad.yaml": "a: {\n"})
    with pytest.raises(ConfigError, match="the primary config is missing"):
        compose_hydra(tmp_path, "config", [], tmp_path)
    with pytest.raises(ConfigError, match=r"bad\.yaml:2"):
        compose_hydra(tmp_path, "bad", [], tmp_path)


def test_nothing_outside_the_root_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"secret/model/a.yaml": "key: 1\n", "repo/conf/config.yaml": "x: 1\n"})
    root = tmp_path / "repo"
    (root / "conf" / "model").symlink_to(tmp_path / "secret" / "model")
    arguments = tokens("+model=a", "--config-dir=../secret", "+/../../secret/model=a")
    result = compose_hydra(root / "conf", "config", arguments, root)
    assert "key" not in json.dumps(result.config.plain())


def test_interpolation_bombs_are_refused(tmp_path: Path) -> None:
    lines = [f"a{i}:" + f"\n  - ${{a{i + 1}}}" * 10 for i in range(20)]
    write(tmp_path, {"config.yaml": "\n".join([*lines, "a20: 1"])})
    with pytest.raises(ConfigError, match="more than 200,000 values"):
        compose_hydra(tmp_path, "config", [], tmp_path)
