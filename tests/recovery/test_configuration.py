"""recovery.yaml: what it may say, and one clear sentence for what it may not."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.cluster.recovery.configuration import (
    Configuration,
    ConfigurationError,
    load_configuration,
    read_configuration,
)
from schedmate.jobs import Diagnosis

HERE = Path("/etc/schedmate/recovery.yaml")
EXAMPLE = Path(__file__).parents[2] / "examples" / "recovery.yaml"


def read(text: str) -> Configuration:
    return read_configuration(text, HERE)


def test_the_example_is_in_order() -> None:
    found = read(EXAMPLE.read_text())
    assert set(found.diagnostics) >= {"gpu", "collective"}
    assert found.automatic == frozenset()
    assert found.commands is not None


def test_an_empty_file_lets_nothing_happen() -> None:
    found = read("")
    assert (found.automatic, found.commands, found.diagnostics) == (frozenset(), None, {})
    assert found == read("{}")


def test_paths_are_relative_to_the_file() -> None:
    found = read("record: state/r.db\nkill_switch: /run/stop\n")
    assert found.record == Path("/etc/schedmate/state/r.db")
    assert found.kill_switch == Path("/run/stop")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("isolation: {at_mots: 3}", "there is no key isolation.at_mots; did you mean at_most?"),
        ("isolation: {at_most: -1}", "isolation.at_most: -1 is given; it has to be at least 0"),
        ("isolation: {at_most_percent: 200}", "isolation.at_most_percent"),
        ("isolation: {within: soon}", "'soon' is not a duration; write it like 90m"),
        ("isolation: {keep: 0}", "isolation.keep"),
        ("restarts: {per_job: many}", "restarts.per_job"),
        ("automatic: [isolat]", "automatic"),
        (
            "rules: [{isolate: always}]",
            "rules.0.isolate: 'always' is given",
        ),
        ("rules: [{diagnose: gpu}]", "there is no diagnostic 'gpu'"),
        (
            "diagnostics: {gpus: {command: [x], reads: dcgm}}\nrules: [{diagnose: gpu}]",
            "did you mean gpus?",
        ),
        ("diagnostics: {gpu: {command: [], reads: dcgm}}", "diagnostics.gpu.command"),
        ("diagnostics: {gpu: {command: [x], reads: dmesg}}", "diagnostics.gpu.reads"),
        ("diagnostics: {'a b': {command: [x], reads: dcgm}}", "is not a valid name"),
        ("commands: {drain: reboot}", "commands.drain"),
        ("version: 2", "version"),
        ("- a\n- b", "keys and values"),
        ("a: [", "not YAML"),
        ("!!python/object:os.system {}", "not YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(text)
    message = str(error.value)
    assert words in message, message
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not message.endswith("?.")


@given(text=st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_sentence(text: str) -> None:
    with suppress(ConfigurationError):
        assert isinstance(read(text), Configuration)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "recovery.yaml"
    place.write_text("cluster: a\n")
    place.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        load_configuration(place)
    place.chmod(0o644)
    assert load_configuration(place).cluster == "a"
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_configuration(tmp_path / "missing")
    place.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError):
        load_configuration(place)


def test_the_first_rule_that_fits_counts() -> None:
    found = read(
        "diagnostics: {gpu: {command: [x], reads: dcgm}}\n"
        "rules:\n"
        "  - {when: {name: ECC Error}, diagnose: gpu, restart: 'no'}\n"
        "  - {when: {component: [gpu, nvlink]}, isolate: text}\n"
    )
    ecc = Diagnosis(error_type="infrastructure", error_name="ECC Error", faulty_component="gpu")
    assert (found.rule_for(ecc).restart, found.rule_for(ecc).diagnose) == ("no", ("gpu",))
    other = ecc.model_copy(update={"error_name": "NVLink Error"})
    assert found.rule_for(other).isolate == "text"
    none = ecc.model_copy(update={"error_name": "X", "faulty_component": "storage"})
    assert (found.rule_for(none).isolate, found.rule_for(none).restart) == ("never", "no")


def test_without_rules_those_that_come_along_count() -> None:
    found = read("diagnostics: {gpu: {command: [x], reads: dcgm}}")
    nvlink = Diagnosis(error_type="infrastructure", faulty_component="nvlink")
    rule = found.rule_for(nvlink)
    assert (rule.isolate, rule.diagnose) == ("confirmed", ("gpu",))  # there is no `collective`
    script = Diagnosis(error_type="script", faulty_component="gpu")
    assert found.rule_for(script).isolate == "never"


def test_the_command_that_checks(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "recovery.yaml"
    place.write_text("cluster: alpha\nisolation: {within: 12h}\n")
    place.chmod(0o600)
    done = cli("recover", "check", str(place))
    assert "within: 43200.0" in done.out
    assert "in order" in done.err
    document = json.loads(cli("recover", "check", str(place), "--json").out)
    assert document["cluster"] == "alpha"
    place.write_text("clutser: alpha\n")
    wrong = cli("recover", "check", str(place))
    assert (wrong.code, wrong.out) == (3, "")
    assert "did you mean cluster?" in wrong.err
