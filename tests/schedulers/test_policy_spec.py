"""A policy that is asked for by text: one way to take the text apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers import registry
from schedmate.schedulers.registry import PolicySpec, has_setting, make, split_outside_quotes

words = st.text("abcdefgh_.+", min_size=1)
values = st.text(min_size=1)


@given(words, st.booleans(), st.dictionaries(words, values))
def test_what_is_written_is_read_again(name: str, own: bool, settings: dict[str, str]) -> None:
    spec = PolicySpec(f"{name}:Class" if own else name, settings)

    assert PolicySpec.parse(str(spec)) == spec


@given(st.lists(st.tuples(words, st.dictionaries(words, values)), min_size=1))
def test_a_list_of_them_is_taken_apart_at_its_commas(
    asked: list[tuple[str, dict[str, str]]],
) -> None:
    specs = [PolicySpec(name, settings) for name, settings in asked]
    text = ",".join(map(str, specs))

    assert [PolicySpec.parse(one) for one in split_outside_quotes(text, ",")] == specs


def test_a_value_with_a_colon_or_comma_stands_in_quotes() -> None:
    assert PolicySpec.parse(
        """tiresias:history='a,b:c.csv':promote=2;consolidate="it's; x" """.strip()
    ) == (
        PolicySpec("tiresias", {"history": "a,b:c.csv", "promote": "2", "consolidate": "it's; x"})
    )
    assert PolicySpec.parse("m:C:a='it''s'").settings == {"a": "it's"}
    with pytest.raises(UsageError, match=r"in quotes: history='a:b\.csv'"):
        PolicySpec.parse("tiresias:history=a:b.csv")
    with pytest.raises(UsageError, match="does not end with it"):
        PolicySpec.parse("tiresias:history='a:b.csv")


def test_settings_come_after_colons_or_semicolons() -> None:
    assert PolicySpec.parse("lucid:patience=2;burst=3:backfill=true") == PolicySpec(
        "lucid", {"patience": "2", "burst": "3", "backfill": "true"}
    )
    assert PolicySpec.parse("package.module:Class:a=1") == PolicySpec(
        "package.module:Class", {"a": "1"}
    )


def test_defaults_are_those_that_the_policy_has_and_nobody_set() -> None:
    spec = PolicySpec.parse("sjf:backfill=false")

    assert spec.with_defaults({"backfill": "true", "patience": "2"}) == spec
    assert PolicySpec.parse("sjf").with_defaults({"backfill": "true", "patience": "2"}) == (
        PolicySpec("sjf", {"backfill": "true"})
    )


def test_a_policy_of_somebody_elses_keeps_its_whole_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec_policies.py").write_text(
        "from schedmate.schedulers.policies.queues import Sjf\n\n\nclass Mine(Sjf):\n"
        "    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    made = make(PolicySpec("spec_policies:Mine", {"backfill": "true"}))

    assert type(made).__name__ == "Mine"
    assert has_setting("spec_policies:Mine:backfill=true", "backfill")
    with pytest.raises(UsageError, match="has no setting 'gone=1'"):
        make("spec_policies:Mine:gone=1")


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_says_what_it_means(name: str) -> None:
    policy = registry.policy_class(name)
    said = registry.meanings(policy)
    assert [one.name for one in registry.parameters(policy) if not said.get(one.name)] == []
