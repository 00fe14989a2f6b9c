"""The table of kinds of clusters, and one that a separate package adds: `examples/plugin`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from schedmate.base.errors import SettingsError, UsageError
from schedmate.cli import COMMANDS
from schedmate.cluster import BUNDLED, cluster_kind, cluster_names, clusters
from schedmate.cluster.bounds import Bounds, load_bounds

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugin"


def package(folder: Path, target: str) -> Path:
    """A folder with the example, and with metadata as of an installed package."""
    shutil.copytree(EXAMPLE / "my_site", folder / "my_site")
    metadata = folder / "site_clusters-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: site-clusters\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[schedmate.clusters]\nfolder = {target}\n")
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    registered = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    return package(tmp_path / "site", registered["schedmate.clusters"]["folder"])


@pytest.fixture
def here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is on the path of this process."""
    monkeypatch.syspath_prepend(str(installed))


@pytest.fixture
def bounds(tmp_path: Path) -> Path:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    repo = str(ROOT / "examples" / "train_repo")
    (jobs / "7.json").write_text(json.dumps({"repo": repo, "command": "python train.py"}))
    path = tmp_path / "bounds.yaml"
    stop = tmp_path / "stop"
    path.write_text(f"kill_switch: {stop}\nfolder: {{jobs: {jobs}}}\n")
    path.chmod(0o600)
    return path


def schedmate(*words: str | Path, path: Path, code: int = 0) -> str:
    """What the program prints with this folder on Python's path, errors included."""
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(path)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_kind_has_its_name_and_its_commands() -> None:
    kinds = {kind.name: kind for kind in clusters()}
    assert list(kinds) == list(BUNDLED) == cluster_names()
    assert {kind.group for kind in kinds.values()} <= set(COMMANDS)
    assert cluster_kind("kueue") is kinds["kubernetes"]
    with pytest.raises(UsageError, match="ray; did you mean slurm"):
        cluster_kind("slrm")


def test_the_agent_of_a_kind_of_another_package(installed: Path, bounds: Path) -> None:
    words = ("folder", "agent", "--once", "--dry-run", "--json", "--bounds", bounds)
    text = schedmate(*words, "--state", bounds.parent / "state", path=installed)
    found = json.loads(text[text.index("{") :])
    assert (found["cluster"], found["pending"]) == ("folder", 1)
    assert [one["job"] for one in found["estimated"]] == ["7"]
    text = schedmate("folder", "plan", "7", "--bounds", bounds, path=installed, code=3)
    assert text == "error: no run of 7 is known that ended in the last 14 days.\n"


def test_its_doctor(installed: Path, bounds: Path) -> None:
    text = schedmate("folder", "doctor", "--bounds", bounds, path=installed)
    assert text.startswith("✓ scheduler: folder, cluster folder, 1 job\n✓ kill switch: `touch ")
    shown = schedmate("folder", "doctor", "--json", path=installed)
    assert json.loads(shown)["schema"] == "schedmate.folder-doctor/v1"


def test_it_is_offered_where_the_others_are(installed: Path) -> None:
    assert "Run schedmate's agent beside a folder cluster." in schedmate("--help", path=installed)
    text = schedmate("init", "--yes", "--scheduler", "folder", path=installed)
    assert "✓ scheduler: folder, cluster folder; `schedmate folder doctor` checks" in text
    text = schedmate("init", "--yes", "--scheduler", "floder", path=installed, code=2)
    assert "slurm, kubernetes, ray, folder, none; did you mean folder?" in text


@pytest.mark.usefixtures("here")
def test_its_section_of_the_bounds(bounds: Path) -> None:
    assert load_bounds(bounds).section_of("folder").jobs == bounds.parent / "jobs"
    assert Bounds().section_of("folder").jobs == Path("jobs")
    bounds.write_text("folder: {jobs: [1]}\n")
    with pytest.raises(SettingsError, match="jobs"):
        load_bounds(bounds)
    bounds.write_text("floder: {}\n")
    with pytest.raises(SettingsError, match="floder"):
        load_bounds(bounds)


@pytest.mark.parametrize("target", ["no_such_site:Folder", "my_site.folder:FolderAdapter"])
def test_a_kind_that_cannot_be_used_is_named(tmp_path: Path, target: str) -> None:
    broken = package(tmp_path / "site", target)
    text = schedmate("folder", "agent", path=broken, code=2)
    assert text.startswith("error: cluster 'folder'")
    assert text.count("\n") == 1
    assert "slurm" in schedmate("--help", path=broken)
