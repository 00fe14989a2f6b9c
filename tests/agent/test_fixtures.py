"""Static extraction on small repositories written for the purpose, one a way of wiring a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedmate.agent.static import extract
from schedmate.jobs import LaunchConfig, WorkloadMetadata

REPOS = Path(__file__).parent.parent / "fixtures" / "repos"
CASES = sorted(path.parent for path in REPOS.glob("*/*/case.yaml"))


def _same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return any(_same(got, option) for option in expected)
    if isinstance(got, str) and isinstance(expected, str):
        return _letters(got) == _letters(expected)
    return bool(got == expected) and isinstance(got, bool) == isinstance(expected, bool)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _parameters() -> list[Any]:
    """A case with a `gap` is one that extraction is known to get wrong, with what is missing."""
    found = []
    for root in CASES:
        gap = yaml.safe_load((root / "case.yaml").read_text()).get("gap")
        marks = [pytest.mark.xfail(reason=gap, strict=True)] if gap else []
        found.append(pytest.param(root, id=root.name, marks=marks))
    return found


@pytest.mark.parametrize("root", _parameters())
def test_fields_and_their_evidence(root: Path) -> None:
    case = yaml.safe_load((root / "case.yaml").read_text())
    found = extract(root, case["command"], LaunchConfig(**case.get("launch", {})))

    wrong = {
        field: (found.metadata.get(field), expected)
        for field, expected in case["expected"].items()
        if not _same(found.metadata.get(field), expected)
    }
    assert not wrong, f"got, expected: {wrong}\nwarnings: {found.warnings}"
    for field, trap in case.get("not_expected", {}).items():
        assert not _same(found.metadata.get(field), trap), field
    for field, place in case.get("evidence", {}).items():
        evidence = found.metadata.evidence[field].model_dump()
        assert {key: evidence[key] for key in place} == place, field
    for warning in case.get("warnings", []):
        assert any(warning in text for text in found.warnings), found.warnings
    assert_kept_to_its_kind(found.metadata)


def assert_kept_to_its_kind(metadata: WorkloadMetadata) -> None:
    """Others have no field of trainings; where a kind is unsure, no field of trainings is sure."""
    sections = ("training_config", "dataset_config")
    filled = {
        f"{section}.{key}"
        for section in sections
        for key, value in metadata.sections()[section].items()
        if value is not None
    }
    assert metadata.family == "training" or not filled
    kind = metadata.evidence.get("job_kind")
    if kind is None or kind.unsure:
        assert all(metadata.evidence[field].unsure for field in filled)


def test_each_has_a_name_of_its_own() -> None:
    names = [root.name for root in CASES]
    assert len(names) > 200
    assert sorted(set(names)) == sorted(names)
