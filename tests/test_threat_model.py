"""The threat model names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "THREAT_MODEL.md").read_text())


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_a_proof_exists(path: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / path).read_text()


def test_every_threat_has_a_proof() -> None:
    rows = [
        line
        for line in (ROOT / "docs" / "THREAT_MODEL.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| threat")
    ]
    assert len(rows) > 15
    assert all("::test_" in row for row in rows)
