"""Configuration files of every format: values, lines, bounds and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from tree_leaves import leaves

from schedmate.agent.configs.gin import parse_gin
from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.trees import ConfigError
from schedmate.agent.configs.yaml_reader import read_detectron
from schedmate.agent.static import extract
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.base.errors import InputError


def read(root: Path, name: str, text: str | bytes) -> Value:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path, root)


def lines(value: Value) -> dict[str, tuple[object, int | None]]:
    return {
        path: (leaf.data, leaf.origin.line if leaf.origin else None) for path, leaf in leaves(value)
    }


def test_yaml_scalars_and_lines(tmp_path: Path) -> None:
    text = (
        "lr: 1e-4\n"
        "quoted: '1e-4'\n"
        "on: [yes, Off, ~, 0x10, 010, 1_000, .5, -1.e3, .inf]\n"
        "date: 2024-01-01\n"
        "nested:\n"
        "  - a: 1\n"
        "    b: text\n"
        "  -\n"
        "    c: |\n"
        "      two\n"
        "      lines\n"
        "7: seven\n"
    )
    value = read(tmp_path, "conf/a.yaml", text)
    assert value.plain() == {
        "lr": 1e-4,
        "quoted": "1e-4",
        True: [True, False, None, 16, 8, 1000, 0.5, -1000.0, float("inf")],
        "date": "2024-01-01",
        "nested": [{"a": 1, "b": "text"}, {"c": "two\nlines\n"}],
        7: "seven",
    }
    found = lines(value)
    assert found["lr"] == (1e-4, 1)
    assert found["nested.0.b"] == ("text", 7)
    assert found["nested.1.c"] == ("two\nlines\n", 9)
    assert value.data["lr"].origin == Origin("config", "conf/a.yaml", 1)


def test_yaml_tags_are_data(tmp_path: Path) -> None:
    value = read(
        tmp_path,
        "a.yaml",
        "obj: !!python/object/apply:os.system [echo hi]\n"
        "new: !new:pkg.Net\n  dim: 3\n"
        "fn: !name:pkg.fn\n"
        "inc: !include other.yaml\n"
        "tup: !!python/tuple [1, 2]\n"
        "text: !!str 3\n"
        "num: !!float 3\n"
        "odd: !!int x\n",
    )
    assert value.data["obj"].plain() == {
        "__tag__": "!!python/object/apply:os.system",
        "__args__": ["echo hi"],
    }
    assert value.data["new"].plain() == {"__tag__": "!new:pkg.Net", "dim": 3}
    assert value.data["fn"].data == Unknown("!name:pkg.fn")
    assert value.data["inc"].data == Unknown("!include other.yaml")
    assert value.data["tup"].plain() == (1, 2)
    assert value.data["text"].data == "3"
    assert value.data["num"].data == 3.0
    assert value.data["odd"].data == Unknown("!!int x")


def test_yaml_anchors_merges_and_documents(tmp_path: Path) -> None:
    value = read(
        tmp_path,
        "a.yaml",
        "base: &b {x: 1, y: 2}\n"
        "other: &o {y: 3, z: 4}\n"
        "one: {<<: *b, y: 9}\n"
        "two:\n  w: 0\n  <<: [*b, *o]\n"
        "loop: &l [*l]\n",
    )
    assert value.data["one"].plain() == {"x": 1, "y": 9}
    assert value.data["two"].plain() == {"w": 0, "x": 1, "y": 2, "z": 4}
    assert value.data["two"].data["z"].origin.line == 2
    assert value.data["loop"].data[0].data == Unknown("*l")
    several = read(tmp_path, "b.yaml", "---\na: 1\n---\nb: 2\n---\n")
    assert several.plain() == [{"a": 1}, {"b": 2}]
    assert read(tmp_path, "c.yaml", "").data is None


def test_hyperpyyaml_references(tmp_path: Path) -> None:
    text = (
        "lr: 0.5\n"
        "names: {run: exp}\n"
        "double: !ref <lr> * 2\n"
        "chain: !ref <double>\n"
        "path: !ref <names[run]>/lr_<lr>\n"
        "net: !new:pkg.Net\n  lr: !ref <lr>\n"
        "copy: !ref <net>\n"
        "gone: !ref <nothing>\n"
        "attr: !ref <net.weight>\n"
        "power: !ref <lr> ** 99999999\n"
        "self: !ref <self>\n"
        "plain: out/<lr>\n"
        "nested: !ref <plain>/x\n"
        "bare: !ref just/text\n"
    )
    value = read(tmp_path, "a.yaml", text)
    assert value.data["double"].data == 1.0
    assert value.data["chain"].data == 1.0
    assert value.data["path"].data == "exp/lr_0.5"
    assert value.data["net"].data["lr"].origin.line == 1
    assert value.data["copy"].plain() == {"__tag__": "!new:pkg.Net", "lr": 0.5}
    assert value.data["gone"].data == Unknown("!ref <nothing>")
    assert value.data["attr"].data == Unknown("!ref <net.weight>")
    assert value.data["power"].data == "0.5 ** 99999999"
    assert value.data["self"].data == Unknown("!ref <self>")
    assert value.data["plain"].data == "out/<lr>"
    assert value.data["nested"].data == "out/0.5/x"
    assert value.data["bare"].data == "just/text"
    command = Value(2.0, Origin("command", text="--lr"))
    changed = read_config(tmp_path / "a.yaml", tmp_path, overrides={"lr": command})
    assert changed.data["double"].data == 4.0
    assert changed.data["net"].data["lr"].origin == command.origin


def test_json_with_comments(tmp_path: Path) -> None:
    value = read(
        tmp_path,
        "ds.json",
        '{\n  // batch\n  "train_batch_size": 32, /* all\n of them */\n'
        '  "fp16": {"enabled": true, "x": null,},\n  "lr": 1e-3, "t": "a\\u00e9\\n",\n'
        "  list: ['one', NaN, -Infinity,],\n}\n",
    )
    found = lines(value)
    assert found["train_batch_size"] == (32, 3)
    assert found["fp16.enabled"] == (True, 5)
    assert found["fp16.x"] == (None, 5)
    assert found["lr"] == (1e-3, 6)
    assert found["t"] == ("aé\n", 6)
    assert found["list.0"] == ("one", 7)
    assert found["list.2"] == (float("-inf"), 7)


def test_toml(tmp_path: Path) -> None:
    value = read(
        tmp_path,
        "a.toml",
        'x = 1\n[train]\nlr = 1e-3\ntext = """\n[not.a.table]\ny = 2\n"""\n'
        "list = [\n  1, # one\n  2,\n]\ninline = {a = {b = true}}\n"
        "[[layer]]\nn = 1\n[layer.act]\nkind = 'relu'\n[[layer]]\nn = 2\nopt.lr = 0.5\n"
        "day = 2024-01-01\n",
    )
    assert lines(value) == {
        "x": (1, 1),
        "train.lr": (1e-3, 3),
        "train.text": ("[not.a.table]\ny = 2\n", 4),
        "train.list.0": (1, 8),
        "train.list.1": (2, 8),
        "train.inline.a.b": (True, 12),
        "layer.0.n": (1, 14),
        "layer.0.act.kind": ("relu", 16),
        "layer.1.n": (2, 18),
        "layer.1.opt.lr": (0.5, 19),
        "layer.1.day": ("2024-01-01", 20),
    }


def test_ini_follows_configparser(tmp_path: Path) -> None:
    text = (
        "; comment\n[DEFAULT]\nSeed = 1\n\n[train]\nEpochs: 10  ; ten\n"
        "sizes = [1,\n    2]\nratio = %(x)s\nflag\n"
    )
    value = read(tmp_path, "a.ini", text)
    train = value.data["train"]
    assert train.plain() == {
        "seed": 1,
        "epochs": 10,
        "sizes": [1, 2],
        "ratio": "%(x)s",
        "flag": "",
    }
    assert train.data["epochs"].origin == Origin("config", "a.ini", 6, "10")
    assert read(tmp_path, "net.cfg", "[net]\nbatch=64\n").plain() == {"net": {"batch": 64}}


def test_key_value_files(tmp_path: Path) -> None:
    text = (
        "# comment\nlr = 0.1 # inline\n--epochs 10\n--fp16\nmodel: resnet\nname two words\n"
        "fast\npath = 'a # b'\n--layers=[1, 2]\nurl=http://h/#x\n"
    )
    expected = {
        "lr": 0.1,
        "epochs": 10,
        "fp16": True,
        "model": "resnet",
        "name": "two words",
        "fast": True,
        "path": "a # b",
        "layers": [1, 2],
        "url": "http://h/#x",
    }
    for name in ("a.conf", "a.args", "a.properties", "a.txt"):
        value = read(tmp_path, name, text)
        assert value.plain() == expected, name
        assert lines(value)["epochs"] == (10, 3)


def test_content_decides_where_the_extension_does_not(tmp_path: Path) -> None:
    assert read(tmp_path, "a.cfg", '{"a": 1}').plain() == {"a": 1}
    assert read(tmp_path, "b.conf", "# c\n[s]\na = 1\n").plain() == {"s": {"a": 1}}
    assert read(tmp_path, "config", "model:\n  dim: 3\n").plain() == {"model": {"dim": 3}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a: café".encode("latin-1"), "café"),
        ("\ufeffa: café".encode(), "café"),
        ("a: café".encode("utf-16"), "café"),
    ],
)
def test_encodings(tmp_path: Path, raw: bytes, expected: str) -> None:
    assert read(tmp_path, "a.yaml", raw).plain() == {"a": expected}


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.yaml", "a: 1\nb: [\n", "a.yaml:3"),
        ("a.yaml", "a: {{ template }}", "a.yaml:1"),
        ("a.yaml", "a: *nope", "a.yaml:1"),
        ("a.yaml", "a: 1\n<<: 3", "a.yaml:2"),
        ("a.yaml", b"a: \x00", "a.yaml"),
        ("a.json", '{"a": 1,\n "b" 2}', "a.json:2"),
        ("a.json", '{"a": tru}', "a.json:1"),
        ("a.json", '["\\q"]', "a.json:1"),
        ("a.json", "{} {}", "a.json:1"),
        ("a.toml", "a = 1\nb = \n", "a.toml:2"),
        ("a.ini", "[a]\n= 3\n", "a.ini:2"),
        ("a.pbtxt", "a: 1\nb { c: [1 }", "a.pbtxt:2"),
        ("a.pbtxt", "a: {\n", "a.pbtxt:2"),
        ("a.py", "a = (", "a.py:1"),
    ],
)
def test_broken_syntax_names_the_line(
    tmp_path: Path, name: str, text: str | bytes, place: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, name, text)
    assert isinstance(caught.value, InputError)
    assert str(caught.value).startswith(place + ":")
    assert "\n" not in str(caught.value)


_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("laughs.yaml", _LAUGHS),
        ("merged.yaml", _LAUGHS.replace("[x, x, x, x, x, x, x, x, x]", "{k: 1}")),
        ("deep.yaml", "- " * 500_000),
        ("flow.yaml", "[" * 500_000),
        ("maps.yaml", "{a: " * 200_000),
        ("many.yaml", "a: 1\n" * 300_000),
        ("deep.json", "[" * 500_000),
        ("many.json", "[" + "1," * 300_000 + "1]"),
        ("deep.toml", "a = " + "[" * 500_000),
        ("dots.toml", ".".join(["a"] * 300_000) + " = 1"),
        (
            "refs.yaml",
            "".join(f"a{i}: [{f'!ref <a{i + 1}>, ' * 9}]\n" for i in range(12)) + "a12: 1",
        ),
        ("cycle.yaml", "a: {b: !ref <a>}"),
        ("deep.pbtxt", "a {" * 300_000),
        ("many.pbtxt", "a: 1\n" * 300_000),
        ("deep.py", "a = " + "[" * 5_000),
        ("shared.py", "a = [1, 1]\n" + "a = [a, a]\n" * 60),
    ],
)
def test_bombs_are_refused(tmp_path: Path, name: str, text: str) -> None:
    # expanded, the small ones among them would not fit into memory
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError):
        read_config(tmp_path / name, tmp_path)


def test_ten_thousand_keys_are_read(tmp_path: Path) -> None:
    text = "".join(f"key_{i}: {i}\n" for i in range(10_000))
    (tmp_path / "a.yaml").write_text(text)
    assert len(read_config(tmp_path / "a.yaml", tmp_path).data) == 10_000


def test_only_plain_files_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    secret = tmp_path / "secret.yaml"
    secret.write_text("a: 1")
    (root / "link.yaml").symlink_to(secret)
    (root / "loop.yaml").symlink_to(root / "loop.yaml")
    for path in (
        root / "link.yaml",
        root / "loop.yaml",
        root / ".." / "secret.yaml",
        root / "none.yaml",
        root / "nul\0.yaml",
        root,
    ):
        with pytest.raises(ConfigError):
            read_config(path, root)
    (root / "big.yaml").write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 4 MB"):
        read_config(root / "big.yaml", root)


def test_detectron_bases(tmp_path: Path) -> None:
    files = {
        "a/run.yaml": (
            "_BASE_: [../base.yaml, 'detectron2://x.yaml']\n"
            "SOLVER:\n  STEPS: (60000, 80000)\n  BASE_LR: 2e-2\n"
        ),
        "base.yaml": "_BASE_: root.yaml\nSOLVER: {BASE_LR: 0.1, MAX_ITER: 90000}\n",
        "root.yaml": "MODEL: {NAME: rcnn}\nSOLVER: {GAMMA: 0.1}\n",
        "loop1.yaml": "_BASE_: loop2.yaml\n",
        "loop2.yaml": "_BASE_: loop1.yaml\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    value = read_detectron(tmp_path / "a/run.yaml", tmp_path)
    assert value.plain() == {
        "_BASE_": None,
        "MODEL": {"NAME": "rcnn"},
        "SOLVER": {"GAMMA": 0.1, "BASE_LR": 0.02, "MAX_ITER": 90000, "STEPS": (60000, 80000)},
    }
    assert value.data["_BASE_"].data == Unknown("detectron2://x.yaml")
    solver = value.data["SOLVER"].data
    assert (solver["MAX_ITER"].origin.file, solver["MAX_ITER"].origin.line) == ("base.yaml", 2)
    assert solver["BASE_LR"].origin == Origin("config", "a/run.yaml", 4)
    with pytest.raises(ConfigError, match="is its own _BASE_"):
        read_detectron(tmp_path / "loop1.yaml", tmp_path)


def test_hocon(tmp_path: Path) -> None:
    text = (
        "# one experiment on another\n"
        "base {\n"
        "  name = run ${one}, path = ./data/a b/ // where\n"
        "  train.steps: 10\n"
        "  list = [1, two\n    3.5 ]\n"
        "}\n"
        "best = ${base} { train.lr = 5e-4, on = true, include = null }\n"
        "again = ${base.train.steps}\n"
        "one = 1\n"
        "base.train.batch = 4\n"
    )
    value = read(tmp_path, "experiments.conf", text)
    plain = value.plain()
    assert plain["base"]["train"] == {"steps": 10, "batch": 4}
    assert plain["base"]["list"] == [1, "two", 3.5]
    assert plain["base"]["path"] == "./data/a b/"
    assert plain["base"]["name"] == "run 1"
    assert plain["again"] == 10
    assert plain["best"] == {
        "name": "run 1",
        "path": "./data/a b/",
        "train": {"steps": 10, "batch": 4, "lr": 5e-4},
        "list": [1, "two", 3.5],
        "on": True,
    }
    assert lines(value)["base.train.steps"] == (10, 4)


def test_text_of_protocol_buffers(tmp_path: Path) -> None:
    text = """# detector
model { faster_rcnn { num_classes: 20 name: "fast" ' one' } }
train_config: <
  batch_size: 8; fine_tune: true
  [my.extension] { rate: 0.04, kind: SGD }
  steps: [1, 2]
>
layer { name: "a" }
layer { name: "b" }
"""
    for name in ("pipeline.config", "net.pbtxt"):
        value = read(tmp_path, name, text)
        assert value.plain() == {
            "model": {"faster_rcnn": {"num_classes": 20, "name": "fast one"}},
            "train_config": {
                "batch_size": 8,
                "fine_tune": True,
                "my.extension": {"rate": 0.04, "kind": "SGD"},
                "steps": [1, 2],
            },
            "layer": [{"name": "a"}, {"name": "b"}],
        }
        assert lines(value)["train_config.batch_size"] == (8, 4)


def test_python_files_of_plain_values(tmp_path: Path) -> None:
    text = """import os
BASE = 64
config = dict(batch_size=BASE, steps=-1, path=os.environ["X"], **more)
optim = {"lr": 1e-3, "betas": (0.9, 0.95), 3: 4}
class Data:
    name: str = "cifar10"
    def f(self): pass
BASE = open("x").read()
again = BASE
"""
    value = read(tmp_path, "conf.py", text)
    assert value.plain() == {
        "config": {"batch_size": 64, "steps": -1},
        "optim": {"lr": 1e-3, "betas": [0.9, 0.95]},
        "Data": {"name": "cifar10"},
    }
    assert lines(value)["optim.lr"] == (1e-3, 4)


@pytest.mark.parametrize("text", ["a {\n b = 1\n", "a {\n}\n}\n", "a {\n [ = 2\n}", "{" * 3000])
def test_broken_hocon(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.hocon"):
        read(tmp_path, "a.hocon", text)


def test_gin(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/base.gin").write_text("LR = 1e-3\ntrain.steps = 100\n")
    (tmp_path / "run.gin").write_text(
        "# comment\nimport pkg.mod\ninclude 'sub/base.gin'\ninclude 'far/away.gin'\n"
        "LR = 2.0  # later wins\nscope/Adam.lr = %LR\nAdam.betas = (\n  0.9,\n  0.999,  # b2\n)\n"
        "Net.fn = @build/act()\nNet.names = ['a', \"b # c\", %LR, @x]\nNet.text = 'ab' \\\n  'cd'\n"
        "Net.map = {'k': None, 'on': True, 're': r'a\\.b'}\nA = %B\nB = %A\nT.x = %gin.REQUIRED\n"
        'Trainer:\n  steps = 5\n  name = "q"\n'
    )
    command = Value("Trainer.steps = 7", Origin("command", text="--gin.Trainer.steps=7"))
    found = parse_gin(tmp_path / "run.gin", tmp_path, bindings=[command])
    assert found["train.steps"].origin == Origin("config", "sub/base.gin", 2, "100")
    assert found["scope/Adam.lr"].data == 2.0
    assert found["scope/Adam.lr"].origin == Origin("config", "run.gin", 5, "2.0")
    assert found["Adam.betas"].plain() == (0.9, 0.999)
    assert found["Net.fn"].data == Unknown("@build/act()")
    assert found["Net.names"].plain() == ["a", "b # c", 2.0, None]
    assert found["Net.text"].data == "abcd"
    assert found["Net.map"].plain() == {"k": None, "on": True, "re": "a\\.b"}
    assert found["A"].data == Unknown("%B")
    assert found["T.x"].data == Unknown("%gin.REQUIRED")
    assert found["include far/away.gin"].data == Unknown("far/away.gin")
    assert (found["Trainer.steps"].data, found["Trainer.steps"].origin) == (7, command.origin)
    assert found["Trainer.name"].origin == Origin("config", "run.gin", 21, '"q"')


@pytest.mark.parametrize("text", ["x = [1,\n", "x", "x = 'a", "a b = 1"])
def test_broken_gin(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        parse_gin(text, tmp_path)


def test_gin_cycles_and_bombs(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("include 'b.gin'\n")
    (tmp_path / "b.gin").write_text("include 'a.gin'\n")
    with pytest.raises(ConfigError, match="includes itself"):
        parse_gin(tmp_path / "a.gin", tmp_path)
    bomb = "".join(f"M{i} = [{', '.join([f'%M{i + 1}'] * 10)}]\n" for i in range(15))
    with pytest.raises(ConfigError, match="more than 200,000"):
        parse_gin(bomb + "M15 = 1\n", tmp_path)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("", ("resnet50", 25_000, "step", 8, 0.04, "configs/base.config")),
        ("--config configs/large.py", ("resnet18", 12, "epoch", 64, 0.001, "configs/large.py")),
    ],
)
def test_a_file_that_is_named_answers_whatever_loads_it(
    tmp_path: Path, option: str, expected: tuple[object, ...]
) -> None:
    """The file of a default that is reached, unless the command names another one."""
    files = {
        "train.py": "import argparse\nfrom lab import build, load\np = argparse.ArgumentParser()\n"
        'p.add_argument("--config", default="configs/base.config")\n'
        'p.add_argument("--eval_report", default="configs/report.yaml")\n'
        "build(load(p.parse_args().config)).run()\n",
        "configs/base.config": 'model { name: "resnet50" }\ntrain_config: {\n  batch_size: 8\n'
        "  num_steps: 25000\n  optimizer { learning_rate: 0.04 }\n}\n",
        "configs/large.py": "BATCH = 64\ntrain = dict(batch_size=BATCH, epochs=12, lr=1e-3)\n"
        'model = {"model_name": "resnet18"}\n',
        "configs/report.yaml": "batch_size: 1000\n",
        "configs/unused.config": "train_config: {\n  batch_size: 512\n}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    metadata = extract(tmp_path, f"python train.py {option}").metadata
    training = metadata.sections()["training_config"]
    values = [training.get(name) for name in ("iters", "iter_type", "batch_size", "lr")]
    place = metadata.evidence["training_config.iters"].file
    assert (metadata.model.model_name, *values, place) == expected
