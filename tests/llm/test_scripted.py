"""The scripted model: replies in order, on condition, with errors; bad scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Cli
from langchain_core.messages import HumanMessage

from schedmate.base.errors import InputError, ModelError
from schedmate.llm.scripted import ScriptedChat

SCRIPT = """
schema: schedmate.scripted/v1
replies:
  - when: dataset
    content: cifar10
  - content: first
  - error: timeout
  - content: again and again
    repeat: true
"""


def load(tmp_path: Path, text: str) -> ScriptedChat:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    return ScriptedChat.load(path)


def test_replies_come_in_order_when_they_fit(tmp_path: Path) -> None:
    model = load(tmp_path, SCRIPT)

    def say(text: str) -> str:
        return model.invoke([HumanMessage(text)]).text

    assert say("which model?") == "first"
    assert say("which dataset?") == "cifar10"
    with pytest.raises(ModelError) as caught:
        say("which dataset?")
    assert caught.value.verdict == "timeout"
    assert [say("more") for _ in range(3)] == ["again and again"] * 3


def test_an_exhausted_script_is_like_a_server_that_is_gone(tmp_path: Path) -> None:
    model = load(tmp_path, "replies: []")
    with pytest.raises(ModelError) as caught:
        model.invoke([HumanMessage("hello")])
    assert caught.value.verdict == "unavailable"


@pytest.mark.parametrize(
    "text", ["", "replies: 3", "replies: [{say: hi}]", "[", "replies: []\nschema: other/v1", "\x00"]
)
def test_bad_scripts_are_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"script\.yaml") as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_missing_script(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        ScriptedChat.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("command", ["analyze", "diagnose", "track", "triage"])
def test_a_command_with_a_script_that_is_not_there_fails(
    command: str, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "train.py").write_text("steps = 3\n")
    (tmp_path / "job.out").write_text("KeyError: 'lr'\n")
    given = {"analyze": [tmp_path, "--command", "python train.py"], "triage": [tmp_path]}
    words = map(str, given.get(command, [tmp_path / "job.out"]))
    result = cli(command, *words, "--model", f"scripted:{tmp_path}/none.yaml")
    assert result.code == InputError.exit_code
    assert "cannot read the scripted model" in result.err
    assert "takes a YAML file of replies" in result.err
