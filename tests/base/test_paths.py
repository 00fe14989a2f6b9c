"""Paths that somebody else names: what cannot be looked at is not there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import INPUT, OK
from schedmate.base.files import (
    RealPaths,
    children,
    exists,
    is_dir,
    is_file,
    matching_paths,
    resolved,
)

PACKAGE = Path(__file__).parents[2] / "schedmate"
ODD = {
    "a name too long": "a" * 300,
    "a path too long": "a/" * 3_000,
    "a NUL": "a\0b",
    "half a surrogate pair": "a\ud800",
    "a byte that is not text": "a\udcff",
    "nothing": "",
}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_odd_paths_are_not_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "x"
    assert not any(look(path) for look in (is_file, is_dir, exists))
    assert resolved(path).is_absolute()
    assert children(path) == []
    assert RealPaths()(str(path)) == str(resolved(path))
    assert matching_paths(path, "*", 9) == []
    assert name == "" or matching_paths(tmp_path, f"{name}/*", 9) == []


def test_real_paths_follow_every_link(tmp_path: Path) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "data" / "up").symlink_to("../link/inner")
    (tmp_path / "loop").symlink_to("loop")
    real = RealPaths()
    for text in ("link/inner", "link/up/x", "data/../link", "loop/x", "none/at/all", "data/", ""):
        path = f"{tmp_path}/{text}"
        assert real(path) == str(resolved(Path(path))), text


def test_patterns(tmp_path: Path) -> None:
    for name in "cab":
        (tmp_path / name).touch()
    assert [path.name for path in children(tmp_path)] == ["a", "b", "c"]
    assert len(matching_paths(tmp_path, "[ab]", 9)) == 2
    assert len(matching_paths(tmp_path, "*", 2)) == 2
    for pattern in ("", "/a", "**x", "[", "a" * 300):
        assert matching_paths(tmp_path, pattern, 9) == []


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert not exists(tmp_path / "a")
    assert resolved(tmp_path / "a").parent == tmp_path


def test_what_reads_repositories_asks_here() -> None:
    asked = [
        f"{path}:{node.lineno}"
        for path in (PACKAGE / "agent").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("is_file", "is_dir", "exists") and not node.args
    ]
    assert asked == []


LONG = "a" * 300
COMMANDS = [
    f"bash {LONG}.sh",
    f"cd {LONG} && python train.py",
    f"torchrun {LONG * 20}.py",
    f"python -m {LONG}",
    f"make -f {LONG}",
    f"sbatch {LONG}",
    f"source {LONG}; python train.py",
    f"python train.py --config {LONG}.yaml @{LONG}",
    f"docker build -f {LONG} . && docker run image python train.py",
    "python " + "a/" * 3_000 + "train.py",
    f"[ -f {LONG} ] || python train.py",
    f"python train.py < {LONG} > {LONG}",
    f"cat {LONG} | xargs python train.py",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_may_name_what_no_file_can_be_called(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    (tmp_path / "train.py").write_text("epochs = 3\nfor epoch in range(epochs):\n    pass\n")
    ran = cli("analyze", str(tmp_path), "-c", command)
    assert ran.code in (OK, INPUT), ran.err
    assert "internal error" not in ran.err


@pytest.mark.parametrize("command", ["analyze", "track", "diagnose", "triage"])
@pytest.mark.parametrize("name", [LONG, "\udcff", "a/" * 3_000])
def test_an_argument_may_be_no_name(cli: Cli, command: str, name: str) -> None:
    ran = cli(command, name)
    assert ran.code == INPUT
    assert "internal error" not in ran.err


def test_what_the_system_refuses_is_a_sentence(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        (tmp_path / LONG).open()

    monkeypatch.setattr("schedmate.settings.load_settings", refuse)
    ran = cli("history", "list")
    assert ran.code == INPUT
    assert "File name too long; check its name and rights." in ran.err
