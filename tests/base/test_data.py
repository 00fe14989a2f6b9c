"""The package's own tables, and the cache of what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedmate.base import data

TABLE = "names:\n  - resnet50\n  - 'no'\nwide: 1.5\nnothing:\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "schedmate" / "data"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE)
    return path


def test_every_table_of_the_package_is_the_same_from_the_cache(cache: Path) -> None:
    for path in sorted(data.PACKAGE.rglob("*.yaml")):
        says = data.parse_yaml(path.read_text())
        for _ in range(2):
            again = data.load(str(path))
            assert again == says, path
            assert repr(again) == repr(says), path
    assert len(list(cache.iterdir())) > 20


def test_a_table_that_changed_is_read_again(cache: Path, table: Path) -> None:
    first = data.load(str(table))
    assert first["names"] == ["resnet50", "no"]
    [kept] = cache.iterdir()
    assert json.loads(kept.read_text())["says"] == first
    table.write_text("names: [other]\n")
    assert data.load(str(table)) == {"names": ["other"]}
    assert data.load(str(table)) == {"names": ["other"]}
    assert list(cache.iterdir()) == [kept]


def test_what_json_cannot_say_is_not_kept(cache: Path, table: Path) -> None:
    table.write_text("1: one\n2: two\n")
    for _ in range(2):
        assert data.load(str(table)) == {1: "one", 2: "two"}
    assert not cache.exists()


def forged(kept: Path) -> None:
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "says": "forged"}))


def test_what_others_can_write_is_not_believed(cache: Path, table: Path) -> None:
    true = data.load(str(table))
    [kept] = cache.iterdir()
    forged(kept)
    assert data.load(str(table)) == "forged"  # whoever owns the cache is its user
    kept.chmod(0o666)
    assert data.load(str(table)) == true
    forged(kept)
    cache.chmod(0o777)
    assert data.load(str(table)) == true
    cache.chmod(0o700)
    elsewhere = kept.rename(kept.with_name("elsewhere"))
    kept.symlink_to(elsewhere)
    assert data.load(str(table)) == true


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"of": 1}', "[" * 100_000])
def test_a_broken_cache_is_no_fault(cache: Path, table: Path, content: str) -> None:
    true = data.load(str(table))
    [kept] = cache.iterdir()
    kept.write_text(content)
    assert data.load(str(table)) == true
    assert json.loads(kept.read_text())["says"] == true


def test_no_place_for_a_cache_is_no_fault(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert data.load(str(table))["wide"] == 1.5
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert data.load(str(table))["wide"] == 1.5
    assert not Path("relative").exists()
