"""The service does what its own OpenAPI document says, whatever the document allows to ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi import checks as openapi_checks
from served import TOKEN, Served, served

from schedmate.cluster.record import Record

CASES = 25
"""Requests of each operation."""
DOCUMENTED = [
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("openapi")
    Record(folder / "record.db").close()
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").write_text("step 1 loss 2\nKeyError: 'x'\n")
    roots = ((folder / "logs").resolve(),)
    with served(folder, port=0, token=TOKEN, roots=roots) as running:
        yield running


@pytest.fixture(scope="module")
def document(one: Served) -> Any:
    return one.get("/openapi.json", token=TOKEN).json()


def test_every_route_is_in_the_document(document: Any) -> None:
    assert set(document["paths"]) == {
        "/v1/advise", "/v1/track", "/v1/progress", "/v1/diagnose", "/v1/history",
        "/v1/history/finish",
        "/v1/plans", "/v1/plans/{plan}/approve", "/v1/plans/{plan}/reject",
        "/healthz", "/readyz", "/metrics",
    }  # fmt: skip


OPERATIONS = [
    ("POST", "/v1/advise"), ("POST", "/v1/track"), ("POST", "/v1/progress"),
    ("POST", "/v1/diagnose"),
    ("GET", "/v1/history"), ("POST", "/v1/history"), ("POST", "/v1/history/finish"),
    ("GET", "/v1/plans"), ("POST", "/v1/plans/{plan}/approve"), ("GET", "/readyz"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_it_keeps_to_its_document(one: Served, document: Any, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_dict(document)
    operation = schema[path][method]

    @settings(
        max_examples=CASES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call(
            base_url=f"http://127.0.0.1:{one.address}",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        assert answer.status_code != 500, answer.text
        case.validate_response(answer, checks=DOCUMENTED)

    ask()
