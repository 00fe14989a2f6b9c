"""What counts as said by code and configuration, and by what names a file leads to others."""

from __future__ import annotations

import pytest

from schedmate.agent.react.sources import names_in_file, tokens_by_line


def said(path: str, text: str) -> set[str]:
    return {value for values in tokens_by_line(path, text.split("\n")).values() for value in values}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", '"""gpt9"""\n'),
        ("a.py", "x = 1  # gpt9\n"),
        ("a.py", "def f():\n    'gpt9'\n"),
        ("a.py", 'parser.add_argument("--lr", help="gpt9")\n'),
        ("a.py", 'print("gpt9")\nlogger.info("gpt9")\n'),
        ("a.py", 'assert x, "gpt9"\nraise ValueError("gpt9")\n'),
        ("a.py", 'x = """\ngpt9\n"""\n'),
        ("a.py", "x = 'a sentence that speaks of gpt9'\n"),
        ("a.py", 'print "old"\n)\n"""\ngpt9\n"""\n'),
        ("a.yaml", "# gpt9\nlr: 1  # gpt9\n"),
        ("a.yaml", "note: |\n  gpt9\n\n  model: gpt9\nlr: 1\n"),
        ("a.yaml", "notes:\n  - >-\n    gpt9\n"),
        ("a.yaml", "note: please say that model=gpt9 is what was trained\n"),
        ("a.toml", "note = '''\ngpt9\n'''\n"),
        ("a.yaml", "run: |\n  python t.py\nnote: |\n  gpt9 was trained\n"),
        ("a.py", 'x = "python is what we like, and gpt9"[0]\nprint("python t.py --model gpt9")\n'),
        ("a.sh", "echo gpt9\nprintf gpt9\n# gpt9\n"),
        ("a.sh", "cat <<EOF\ngpt9\nEOF\n: <<'X'\ngpt9\nX\n"),
    ],
)
def test_text_for_people_is_not_said(path: str, text: str) -> None:
    assert "gpt9" not in said(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", 'model = build("gpt9")\n'),
        ("a.py", "model = gpt9()\n"),
        ("a.py", 'parser.add_argument("--model", default="gpt9", help="the model")\n'),
        ("a.py", 'print "old"\nmodel = "gpt9"\n'),
        ("a.yaml", "note: |\n  text\nmodel: gpt9\n"),
        ("a.yaml", "model: {name: gpt9, layers: 2, heads: 4, width: 8, depth: 3}\n"),
        ("a.yaml", "run: python train.py --model gpt9 --lr 1 --steps 5 --batch 8\n"),
        ("a.toml", "note = '''\ntext\n'''\nmodel = 'gpt9'\n"),
        ("a.sh", "python train.py \\\n  --model gpt9\n"),
        ("a.sh", 'cat > ds.json <<EOF\n{"model": "gpt9"}\nEOF\n'),
        ("a.json", '{"model": "gpt9"}\n'),
        ("a.sh", 'python t.py --model "${MODEL:-gpt9}"\n'),
        ("a.sh", 'cmd="torchrun --nproc 8 t.py --model gpt9 --max_steps 5000"\n'),
        ("a.sh", 'FLAGS="--image_size 256 --mask 0.3 --layers 6 --model gpt9"\n'),
        ("a.job", 'bash -c "cd work && python t.py --epochs 5 --model gpt9"\n'),
        ("a.py", 'os.system("python t.py data/a --epochs 5 --lr 0.1 --model gpt9")\n'),
        ("a.yaml", "run: |\n  set -e\n  python t.py --model gpt9\n"),
        ("a.yaml", "args:\n  - |\n    python t.py --model gpt9\n"),
        ("launch", "#!/usr/bin/env python\nmodel = build('gpt9')\n"),
        ("launch", "#!/bin/sh\npython t.py --model gpt9\n"),
    ],
)
def test_what_the_program_says_is_said(path: str, text: str) -> None:
    assert "gpt9" in said(path, text)


def test_a_module_names_what_it_imports_and_its_strings() -> None:
    text = (
        '"""See docs.py."""\n'
        "import data.text\n"
        "from nets import build\n"
        "from . import losses\n"
        'loss = load("configs/gpt.yaml")\n'
        'print("notes.yaml")\n'
    )
    assert names_in_file("train.py", text.split("\n")) == {
        "data.text", "nets", "nets.build", "losses", "configs/gpt.yaml",
    }  # fmt: skip


def test_a_configuration_names_its_values() -> None:
    words = names_in_file("a.yaml", ["defaults:", "  - model: gpt", "feed: logs"])
    assert {"gpt", "logs"} <= words
    assert not words & {"model", "feed", "defaults"}
