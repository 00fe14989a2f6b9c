"""Settings: precedence, origins, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_runner import Cli
from pydantic import ValidationError

import schedmate
from schedmate.base.errors import SettingsError
from schedmate.settings import (
    Settings,
    config_dir,
    explain_settings,
    load_settings,
    unknown_variables,
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def write_user_file(text: str) -> Path:
    path = config_dir() / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults_when_nothing_is_set(project: Path) -> None:
    settings, origins = explain_settings()
    assert settings.top_k == 3
    assert settings.history == Path.home() / ".local/share/schedmate/history"
    assert set(origins) == set(Settings.model_fields)
    assert set(origins.values()) == {"default"}


def test_each_source_yields_to_the_one_above(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = write_user_file("top_k = 11\nbudget_s = 1.5\ndeadline_s = 1.0\nthreshold = 0.1\n")
    (project / "mine.toml").write_text("top_k = 12\nbudget_s = 2.5\ndeadline_s = 2.0\n")
    monkeypatch.setenv("SCHEDMATE_CONFIG", str(project / "mine.toml"))
    monkeypatch.setenv("SCHEDMATE_TOP_K", "13")
    monkeypatch.setenv("SCHEDMATE_BUDGET_S", "3.5")
    settings, origins = explain_settings(top_k=14)
    assert (settings.top_k, settings.budget_s) == (14, 3.5)
    assert (settings.deadline_s, settings.threshold) == (2.0, 0.1)
    assert origins["top_k"] == "--top-k"
    assert origins["budget_s"] == "SCHEDMATE_BUDGET_S in the environment"
    assert origins["deadline_s"] == str(project / "mine.toml")
    assert origins["threshold"] == str(user)
    assert origins["embedder"] == "default"


def test_a_flag_that_was_not_given_changes_nothing(project: Path) -> None:
    (project / "mine.toml").write_text("top_k = 12\n")
    assert load_settings(config=project / "mine.toml", top_k=None).top_k == 12


def test_a_file_in_the_current_directory_is_not_read(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "schedmate.toml").write_text("this is not TOML, and obeyed by nobody\n")
    (project / "schedmate").mkdir()
    (project / "schedmate" / "config.toml").write_text("top_k = 12\n")
    for _ in range(3):
        assert load_settings().top_k == 3
    [told] = caplog.messages
    assert str(project / "schedmate.toml") in told
    assert "schedmate --config" in told
    assert "SCHEDMATE_CONFIG=" in told


def test_a_file_that_is_named_is_read_wherever_it_lies(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "schedmate.toml").write_text("top_k = 12\n")
    monkeypatch.setenv("SCHEDMATE_CONFIG", "schedmate.toml")
    assert load_settings().top_k == 12
    assert load_settings(config=Path("schedmate.toml")).top_k == 12
    assert not caplog.messages
    assert unknown_variables() == []


def test_a_file_that_is_named_must_be_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_CONFIG", "none.toml")
    with pytest.raises(SettingsError, match=r"none\.toml: No such file"):
        load_settings()
    monkeypatch.setenv("SCHEDMATE_CONFIG", "")
    assert load_settings().top_k == 3


def test_a_relative_directory_of_settings_is_not_the_current_one(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "schedmate").mkdir()
    (project / "schedmate" / "config.toml").write_text("top_k = 12\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", ".")
    monkeypatch.setenv("XDG_DATA_HOME", ".")
    assert load_settings().top_k == 3
    assert load_settings().history.is_absolute()


def test_a_relative_history_is_relative_to_its_file(project: Path) -> None:
    write_user_file('history = "jobs"\n')
    assert load_settings().history == config_dir() / "jobs"


def test_tilde_is_the_home_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", "~/jobs")
    assert load_settings().history == Path.home() / "jobs"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk = 3\n", "sets 'topk', which is not a setting; did you mean 'top_k'?"),
        ("zzz = 3\n", "sets 'zzz', which is not a setting; `schedmate config show` lists"),
        (
            "top_k = 0\n",
            "setting 'top_k' from .*schedmate.toml: 0 is given; it has to be at least 1",
        ),
        ("top_k = \n", "cannot read the settings file .*schedmate.toml: "),
        ("a = '\xff'\n", "cannot read the settings file .*schedmate.toml: "),
        ("a = " + "[" * 100_000, "cannot read the settings file .*schedmate.toml: "),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(project: Path, text: str, message: str) -> None:
    (project / "schedmate.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=message):
        load_settings(config=project / "schedmate.toml")


def test_a_wrong_variable_names_itself(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOP_K", "many")
    with pytest.raises(SettingsError, match="'top_k' from SCHEDMATE_TOP_K in the environment"):
        load_settings()


def test_each_variable_that_the_package_names_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(schedmate.__file__).parent
    named = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r'"(SCHEDMATE_[A-Z_]*[A-Z])"', path.read_text(encoding="utf-8"))
    }
    assert {"SCHEDMATE_RECOVERY", "SCHEDMATE_NODE_RANK"} <= named
    for name in named:
        monkeypatch.setenv(name, "x")
    assert unknown_variables() == []


def test_unknown_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOPK", "3")
    monkeypatch.setenv("SCHEDMATE_TOP_K", "3")
    assert unknown_variables() == ["SCHEDMATE_TOPK"]


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().top_k = 4  # type: ignore[misc]


def test_a_misspelt_variable_is_told_of_once_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SCHEDMATE_TOPKK", "3")
    load_settings()
    load_settings()

    said = [one for one in caplog.messages if "SCHEDMATE_TOPKK" in one]
    assert len(said) == 1
    assert "did you mean SCHEDMATE_TOP_K?" in said[0]


@pytest.mark.parametrize("name", ["TRAJECTORIES", "HISTORY", "RULES_FOLDER", "CONFIG"])
def test_the_home_of_an_unknown_user_is_named(
    name: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SCHEDMATE_{name}", "~nobody-here/x")
    done = cli("config", "show")
    assert done.code == 2
    assert "home of a user whom this machine does not know" in done.err
