"""What the commands of `schedmate ray` do before they ask a cluster, and with what it answers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import InputError
from schedmate.cluster.ray.local import _address, local_cluster
from schedmate.commands.ray import LONGEST_ESCAPE, LogText


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LOG = "\x1b[1;31mr\u00e9d\x1b[0m \x1b]0;title\x07x \x1b]8;;u\x1b\\link\x1b(B \u4e16\n"


@pytest.mark.parametrize("at", range(1, len(LOG.encode())))
def test_escape_sequences_and_characters_may_be_split(at: int) -> None:
    screen, file = Terminal(), io.StringIO()
    for stream in (screen, file):
        text = LogText(stream)
        text.write(LOG.encode()[:at])
        text.write(LOG.encode()[at:])
        text.end()
    assert screen.getvalue() == "r\u00e9d x link \u4e16\n"
    assert file.getvalue() == LOG


def test_an_escape_sequence_without_an_end_holds_nothing_up() -> None:
    screen = Terminal()
    text = LogText(screen)
    text.write(b"a\x1b]" + b"0" * LONGEST_ESCAPE)
    text.write(b"b\n\x1b[3")
    text.end()
    assert screen.getvalue() == "ab\n"


@pytest.mark.parametrize("gpus", ["inf", "nan", "1e30", "3000000000", "1.5"])
def test_numbers_of_gpus_that_no_cluster_has(cli: Cli, gpus: str) -> None:
    found = cli("ray", "submit", ".", "-c", "true", "--gpus", gpus)
    assert found.code == 2
    assert "gpus" in found.err.lower()
    assert "Traceback" not in found.err


@pytest.mark.parametrize("words", [("-c", "echo \udcff"), ("-c", "true", "--env", "A=\udcff")])
def test_what_is_no_utf_8_is_not_submitted(cli: Cli, words: tuple[str, ...]) -> None:
    found = cli("ray", "submit", ".", *words)
    assert found.code == 2
    assert "UTF-8" in found.err


def test_a_lease_that_is_shorter_than_the_time_between_two_beats(cli: Cli) -> None:
    found = cli("ray", "up", "--local", "1x1", "--lease", "5s")
    assert found.code == 2
    assert "15 s at least" in found.err


def test_the_process_of_a_local_cluster_takes_no_module_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="nonsense"), local_cluster("nonsense"):
        pass
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "it ended while it started"),
        ("WARNING: something\n", "it printed 'WARNING: something'"),
        ("17\n", "it printed '17'"),
        ('{"address": 3}\n', "it printed"),
        ("[" * 100_000, "it printed"),
        ('{"error": "no GPUs"}\n', "^no GPUs$"),
    ],
)
def test_what_a_holder_says_first_is_checked(line: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        _address(line)
    assert _address('{"address": "127.0.0.1:6379"}\n') == "127.0.0.1:6379"
