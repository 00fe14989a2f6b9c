"""What schedulers, drivers, file systems and services are documented to print when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

FAMILIES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("documented.yaml").read_text()
)


@pytest.mark.parametrize(
    "family", FAMILIES, ids=[f"{one['page'].split('/')[2]}-{n}" for n, one in enumerate(FAMILIES)]
)
def test_a_log_that_ends_in_what_a_page_documents(family: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    for line in family["lines"]:
        path.write_text(f"starting\n{line}\n")
        with open_log(path) as log:
            found = diagnose(log)
        assert found.leaning in family["type"], (line, found.rule)
        assert found.faulty_component in family["component"], (line, found.rule)
        assert found.line == 2, (line, found.rule)


def test_the_same_words_before_further_training_are_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    steps = [f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9)]
    for family in FAMILIES:
        for line in family["lines"]:
            if family["type"] != ["none"]:
                path.write_text(f"{line}\n{''.join(steps)}training is done\n")
                with open_log(path) as log:
                    assert diagnose(log).error_type == "none", line
