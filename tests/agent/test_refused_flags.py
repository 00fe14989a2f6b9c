"""Flags that a program's own parser would refuse, told before the job has waited for its GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.agent.static import extract

_ARGPARSE = """
import argparse
{imports}
parser = argparse.ArgumentParser({made})
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch_size", "-b", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--model", choices=["resnet18", "resnet50"], default="resnet18")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--sizes", type=int, nargs="+", default=[1])
{more}
for epoch in range(args.epochs):
    print(args.lr)
"""


def _warnings(
    tmp_path: Path, flags: str, more: str = "args = parser.parse_args()", imports: str = "",
    made: str = "",
) -> list[str]:  # fmt: skip
    text = _ARGPARSE.format(more=more, imports=imports, made=made)
    (tmp_path / "train.py").write_text(text)
    found = extract(tmp_path, f"python train.py {flags}").warnings
    return [warning for warning in found if "end at once" in warning]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--epohcs 3", "train.py has no option --epohcs (did you mean --epochs?)"),
        ("--batch-size 3", "train.py has no option --batch-size (did you mean --batch_size?)"),
        ("--wandb_run_group=x", "train.py has no option --wandb_run_group"),
        ("--epochs 1e3", "train.py takes a whole number for --epochs, not '1e3'"),
        ("--epochs=3.0", "train.py takes a whole number for --epochs, not '3.0'"),
        ("--sizes 1 two 3", "train.py takes a whole number for --sizes, not 'two'"),
        ("--lr high", "train.py takes a number for --lr, not 'high'"),
        (
            "--model resnet81",
            (
                "train.py takes resnet18, resnet50 for --model, not 'resnet81' "
                "(did you mean resnet18?)"
            ),
        ),
    ],
)
def test_what_it_would_end_at(tmp_path: Path, flags: str, says: str) -> None:
    assert _warnings(tmp_path, flags) == [f"{says}: it would end at once"]


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--epoch 3 --mod resnet50",  # abbreviations
        "-b32 --lr -1e-3 --amp",
        "--sizes 1 2 3 --lr=1e-3",
        "--help",
        "--epochs $EPOCHS --batch_size <N> --model ${MODEL}",
    ],
)
def test_what_it_takes(tmp_path: Path, flags: str) -> None:
    assert _warnings(tmp_path, flags) == []


@pytest.mark.parametrize(
    ("more", "imports", "made"),
    [
        ("args, rest = parser.parse_known_args()", "", ""),
        ("args = parser.parse_args(['--epochs', '4'])", "", ""),
        ("add_options(parser)\nargs = parser.parse_args()", "from library import add_options", ""),
        ("add(parser=parser)\nargs = parser.parse_args()", "from library import add", ""),
        (
            "for n in names():\n    parser.add_argument(f'--{n}')\nargs = parser.parse_args()",
            "from library import names",
            "",
        ),
        ("parser.add_argument(FLAG)\nargs = parser.parse_args()", "from library import FLAG", ""),
        ("args = parser.parse_args()", "import library", "parents=[library.parser()]"),
        ("args = parser.parse_args()", "import library", "parents=library.parsers()"),
        ("sys.argv = sys.argv[:1]\nargs = parser.parse_args()", "import sys", ""),
        (
            "parser = Trainer.add_argparse_args(parser)\nargs = parser.parse_args()",
            "from pytorch_lightning import Trainer",
            "",
        ),
    ],
)
def test_a_parser_that_is_not_known_whole_says_nothing(
    tmp_path: Path, more: str, imports: str, made: str
) -> None:
    assert _warnings(tmp_path, "--epohcs 3", more, imports, made) == []


def test_a_parser_of_its_own_class_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "class Parser(argparse.ArgumentParser):\n"
        "    def parse_args(self, argv=None):\n"
        "        return super().parse_known_args(argv)[0]\n"
        "parser = Parser()\nparser.add_argument('--epochs', type=int)\n"
        "args = parser.parse_args()\n"
    )
    assert extract(tmp_path, "python train.py --epohcs 3").warnings != []
    found = extract(tmp_path, "python train.py --epohcs 3").warnings
    assert not any("end at once" in warning for warning in found)


def test_subcommands_have_options_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--seed', type=int)\n"
        "commands = parser.add_subparsers(dest='command')\n"
        "fit = commands.add_parser('fit')\nfit.add_argument('--epochs', type=int)\n"
        "args = parser.parse_args()\n"
        "for epoch in range(args.epochs):\n    print(epoch)\n"
    )
    right = extract(tmp_path, "python train.py --seed 1 fit --epochs 3").warnings
    assert not any("end at once" in warning for warning in right)
    wrong = extract(tmp_path, "python train.py fit --epoch_count 3").warnings
    assert any("has no option --epoch_count" in warning for warning in wrong)


_CLICK = """
import click
@click.command({settings})
@click.option("--epochs", type=int, default=3)
@click.option("--model", type=click.Choice(["resnet18", "vgg16"]), default="vgg16")
@click.option("--amp/--no-amp", default=True)
@click.argument("data")
def main(epochs, model, amp, data):
    for epoch in range(epochs):
        print(epoch)
main()
"""
_TYPER = """
import typer
app = typer.Typer()
@app.command()
def main(data: str, epochs: int = 3, learning_rate: float = 0.1, amp: bool = False):
    for epoch in range(epochs):
        print(epoch)
app()
"""


@pytest.mark.parametrize(
    ("code", "flags", "says"),
    [
        (_CLICK, "x --epohcs 3", "has no option --epohcs (did you mean --epochs?)"),
        (_CLICK, "x --model vgg61", "takes resnet18, vgg16 for --model, not 'vgg61'"),
        (_CLICK, "x --epochs 3 --no-amp --model vgg16", None),
        (
            _CLICK.replace("{settings}", "context_settings={'ignore_unknown_options': True}"),
            "x --epohcs 3",
            None,
        ),
        (_TYPER, "x --learning_rate 1", "has no option --learning_rate (did you mean --learning-"),
        (_TYPER, "x --epochs many", "takes a whole number for --epochs, not 'many'"),
        (_TYPER, "x --learning-rate 1 --no-amp", None),
    ],
)
def test_click_and_typer(tmp_path: Path, code: str, flags: str, says: str | None) -> None:
    (tmp_path / "train.py").write_text(code.replace("{settings}", ""))
    found = extract(tmp_path, f"python train.py {flags}").warnings
    refused = [warning for warning in found if "end at once" in warning]
    assert (refused == []) if says is None else says in refused[0]


def test_through_the_command(cli: Cli, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    text = _ARGPARSE.format(more="args = parser.parse_args()", imports="", made="")
    (repo / "train.py").write_text(text)
    output = cli("analyze", str(repo), "--command", "python train.py --epohcs 30", "--json")
    parsed = json.loads(output.out)
    told = "train.py has no option --epohcs (did you mean --epochs?): it would end at once"
    assert told in parsed["warnings"]
    text = cli("analyze", str(repo), "--command", "python train.py --epohcs 30").out
    assert f"warning: {told}" in " ".join(text.split())


def _told(tmp_path: Path, code: str, flags: str) -> list[str]:
    (tmp_path / "train.py").write_text(code)
    found = extract(tmp_path, f"python train.py {flags}").warnings
    return [warning for warning in found if "end at once" in warning]


def test_parents_do_not_multiply(tmp_path: Path) -> None:
    doubled = "parser = argparse.ArgumentParser(add_help=False, parents=[parser, parser])\n" * 40
    more = f"{doubled}args = parser.parse_args()"
    assert _warnings(tmp_path, "--epohcs 3", more) == []


@pytest.mark.parametrize(
    ("more", "imports"),
    [
        (
            (
                "if torch.cuda.is_available():\n    parser.add_argument('--gpus')\n"
                "else:\n    parser.add_argument('--cpus')\nargs = parser.parse_args()"
            ),
            "import torch",
        ),
        (
            (
                "try:\n    import apex\n    parser.add_argument('--cpus')\n"
                "except ImportError:\n    pass\nargs = parser.parse_args()"
            ),
            "",
        ),
        (
            (
                "def more(p):\n    p.add_argument('--cpus')\n"
                "if os.path.exists('/opt/x'):\n    more(parser)\nargs = parser.parse_args()"
            ),
            "import os",
        ),
        (
            (
                "def more(p):\n    if torch.cuda.is_available():\n        return\n"
                "    p.add_argument('--cpus')\nmore(parser)\nargs = parser.parse_args()"
            ),
            "import torch",
        ),
        (
            (
                "try:\n    args = parser.parse_args()\n"
                "except SystemExit:\n    args = parser.parse_args([])"
            ),
            "",
        ),
        ("exec(\"parser.add_argument('--cpus')\")\nargs = parser.parse_args()", ""),
        ("names = {'k': 'cpus'}\nprint 'old'\nargs = parser.parse_args()", ""),
    ],
)
def test_options_that_may_differ_elsewhere_say_nothing(
    tmp_path: Path, more: str, imports: str
) -> None:
    assert _warnings(tmp_path, "--cpus 3", more, imports) == []


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        ("NETS = {'a': 1}\nNETS.update(models.__dict__)", False),
        ("NETS = {'a': 1, **models.__dict__}", False),
        ("NETS = {'a': 1}\nNETS[models.NAME] = 2", False),
        ("NETS = {'a': 1}\nNETS |= models.__dict__", False),
        ("NETS = {'a': 1, 'b': models.b}", True),
    ],
)
def test_choices_that_are_not_known_whole(tmp_path: Path, names: str, refused: bool) -> None:
    more = (
        f"{names}\nparser.add_argument('--net', choices=sorted(NETS.keys()))\n"
        "args = parser.parse_args()"
    )
    found = _warnings(tmp_path, "--net other", more, "from torchvision import models")
    assert bool(found) is refused


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--epochs", "takes one value for --epochs, which has none"),
        ("--epochs --lr 3", "takes one value for --epochs, which has none"),
        ("--sizes --lr 3", "takes at least one value for --sizes, which has none"),
        ("--pair 1", "takes 2 values for --pair, which has 1"),
        ("--text '- a b' --pair 1 2 --maybe --own", None),
    ],
)
def test_values_that_are_missing(tmp_path: Path, flags: str, says: str | None) -> None:
    more = (
        "parser.add_argument('--pair', nargs=2)\nparser.add_argument('--text')\n"
        "parser.add_argument('--maybe', nargs='?', const=1)\n"
        "parser.add_argument('--own', **library.options())\nargs = parser.parse_args()"
    )
    found = _warnings(tmp_path, flags, more, "import library")
    assert found == ([f"train.py {says}: it would end at once"] if says else [])


def test_a_missing_value_is_not_one(tmp_path: Path) -> None:
    _warnings(tmp_path, "")
    config = extract(tmp_path, "python train.py --epochs").metadata.sections()["training_config"]
    assert not config.get("iters")


def test_negated_switches(tmp_path: Path) -> None:
    more = (
        "parser.add_argument('--cache', action=argparse.BooleanOptionalAction)\n"
        "args = parser.parse_args()"
    )
    assert _warnings(tmp_path, "--no-cac", more) == []
    assert "(did you mean --no-cache?)" in _warnings(tmp_path, "--no-cahce", more)[0]


def test_long_command_lines(tmp_path: Path) -> None:
    found = _warnings(tmp_path, " ".join(f"--unknown{number}" for number in range(500)))
    assert len(found) == 1
    assert found[0].count("--unknown") == 8
    assert len(_warnings(tmp_path, f"--lr {'x' * 5000}")[0]) < 200
    assert _warnings(tmp_path, "--epochs NUM_EPOCHS --model YOUR_MODEL") == []


_TYPES = """
import typer
from typing import Annotated, Optional, Union
def main(
    lr: Optional[float] = 1, decay: 'float' = 1, warm: float | None = 2,
    cool: Union[float, None] = 3,
    end: Annotated[Optional[float], typer.Option()] = 1, epochs: int = 3,
    amp: bool = typer.Option(True, '--amp/--fp32'), log: Optional[bool] = None,
    quick: Annotated[bool, typer.Option('--quick/--thorough', '-q/-t')] = False,
    loud: int = typer.Option(0, '--verbose', '-v', count=True),
):
    for epoch in range(epochs):
        print(epoch)
typer.run(main)
"""


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("--lr 0.5 --decay 0.5 --warm 0.5 --cool 0.5 --end 0.5", False),
        ("--fp32 --thorough -t --no-log -vv --verbose", False),
        ("--install-completion", False),
        ("--show-completion", False),
        ("--no-amp", True),
        ("--no-quick", True),
        ("--epochs 0.5", True),
    ],
)
def test_types_of_typer(tmp_path: Path, flags: str, refused: bool) -> None:
    assert bool(_told(tmp_path, _TYPES, flags)) is refused


def test_options_of_a_callback(tmp_path: Path) -> None:
    callback = "@app.callback()\ndef first(loud: bool = False):\n    pass\n@app.command()"
    code = _TYPER.replace("@app.command()", callback)
    assert _told(tmp_path, code, "--loud main x --epochs 3") == []


@pytest.mark.parametrize(
    ("old", "new", "flags"),
    [
        ('"vgg16"])', '"vgg16"], False)', "x --model VGG16"),
        ("{settings}", "cls=Command", "x --other 3"),
        ('@click.argument("data")', "@click.version_option('1')", "--version"),
        ('@click.argument("data")', "@click.confirmation_option()", "--yes"),
        ('@click.argument("data")', "@click.password_option()", "--password x"),
        ('@click.argument("data")', "@click.help_option('--usage')", "--usage"),
        ('@click.argument("data")', "@click.option('-v', '--loud', count=True)", "-vv --loud"),
        ('@click.argument("data")', "@click.option('--text')", "--text --other"),
    ],
)
def test_other_options_of_click(tmp_path: Path, old: str, new: str, flags: str) -> None:
    code = _CLICK.replace(old, new).replace("{settings}", "")
    assert _told(tmp_path, code, flags) == []
