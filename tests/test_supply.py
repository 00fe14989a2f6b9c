"""What images and continuous integration install: this clone, and locked files by their hashes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def name_of(requirement: str) -> str:
    """The name of a requirement, as an index compares it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_locked_version_has_hashes_and_covers_the_project(lock: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)
    extras = {"image.txt": ("k8s", "llm", "schedulers", "serve"), "dev.txt": ("dev",)}[lock.name]
    wanted = list(document["project"]["dependencies"])
    wanted += [
        one for extra in extras for one in document["project"]["optional-dependencies"][extra]
    ]
    wanted += document["build-system"]["requires"]
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    for entry in entries:
        first = entry.splitlines()[0]
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+", first), first
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), first
    assert {name_of(one) for one in wanted} <= {name_of(entry) for entry in entries}
    assert "schedmate" not in {name_of(entry) for entry in entries}


def test_an_image_installs_only_the_clone_and_what_is_locked() -> None:
    others = {"build", "tests"}
    folders = [one for one in ROOT.glob("[!.]*") if one.is_dir() and one.name not in others]
    recipes = [
        path
        for pattern in ("Containerfile*", "Dockerfile*")
        for path in (*ROOT.glob(pattern), *(one for each in folders for one in each.rglob(pattern)))
    ]
    assert [path.name for path in recipes] == ["Containerfile"]
    installs = re.findall(r"pip install ([^\\\n]*)", recipes[0].read_text())
    assert len(installs) == 2
    for words in installs:
        assert "--require-hashes -r" in words or (
            "--no-index" in words and words.split()[-1] == "/src"
        )


def test_an_audit_without_a_database_says_so(tmp_path: Path) -> None:
    tool = tmp_path / "pip-audit"
    ended = {
        "requests.exceptions.ConnectionError: no route": (1, 75),
        "No known": (0, 0),
        "yarl  Dependency not found and could not be audited": (0, 75),
        "Found 1": (1, 1),
    }
    for text, (code, expected) in ended.items():
        tool.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
        tool.chmod(0o755)
        done = subprocess.run(
            [str(ROOT / ".ci" / "audit"), str(LOCKS[0])],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
        assert ("was not audited" in done.stderr) == (expected == 75)
