"""`dcgmi diag -r LEVEL -j`: the JSON of DCGM 2 to 4.

Shapes as in NVIDIA/DCGM `testing/python3/dcgm_diag_schema.json` (4.x: a result an entity, warnings
with severity) and `nvvs/include/JsonOutput.h` (2.x and 3.x: `DCGM GPU Diagnostic`, `gpu_ids`, some
warnings plain text). The exit code does not count: it is not zero for persistence mode switched off
as well. Severities: `dcgmErrorSeverity_t` of `dcgmlib/dcgm_errors.h`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from schedmate.plain import whole
from schedmate.recovery.health.verdict import Complaint, Expected, Health, judged
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
ISOLATE, RESET = 2, 6
"""Severities with which a GPU must not be used: isolate it; drain and reset it."""
CONFIGURATION = frozenset({"deployment"})
"""Categories of tests whose failures, if there is no severity, are of software and its settings."""


def assess(ran: Ran, _expected: Expected) -> Health:
    """Faulty if a failed test has a severity of `ISOLATE` or `RESET` or, in a release without
    severities, if a hardware test failed. Only skipped tests: unclear."""
    document = _document(ran.output)
    if document is None:
        said = clean(ran.output.strip()[-200:]) or "nothing"
        return Health("unclear", f"no diagnostic in what dcgmi printed: {said}")
    if error := document.get("runtime_error"):
        return Health("unclear", f"dcgmi could not test: {clean(error, 300)}")
    complaints: list[Complaint] = []
    passed = 0
    for category, test, result in _results(document):
        status = str(result.get("status", "")).strip().lower()
        if status == "pass":
            passed += 1
        elif status in ("fail", "warn"):
            complaints += _complaints(category, test, result, failed=status == "fail")
        elif status not in ("skip", "skipped", "not run", "notrun", ""):
            complaints.append(
                Complaint(_part(result), f"{test}: {clean(status, 40)}", "gpu", False)
            )
    nothing = "all that was tested passed" if passed else "dcgmi tested nothing: all was skipped"
    return judged(complaints, passed=passed, otherwise=nothing)


def _document(text: str) -> dict[str, Any] | None:
    """The diagnostic in a text; older releases print warnings before it."""
    decoder = json.JSONDecoder(parse_int=whole)
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            if start > 10_000:  # no preamble is as long
                return None
            continue
        for root in ROOTS:
            if isinstance(found, dict) and isinstance(found.get(root), dict):
                inner: dict[str, Any] = found[root]
                return inner
        return None
    return None


def _results(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for category in _dicts(document.get("test_categories")):
        for test in _dicts(category.get("tests")):
            for result in _dicts(test.get("results")):
                yield str(category.get("category", "")), str(test.get("name", "a test")), result


def _complaints(
    category: str, test: str, result: dict[str, Any], *, failed: bool
) -> Iterator[Complaint]:
    warnings = result.get("warnings")
    # in a release without severities, plain text or nothing
    by_itself = failed and category.lower() not in CONFIGURATION
    listed = warnings if isinstance(warnings, list) and warnings else [""]
    for warning in listed:
        severity = None
        words = warning
        if isinstance(warning, dict):
            severity, words = warning.get("error_severity"), warning.get("warning", "")
        blames = severity in (ISOLATE, RESET) if isinstance(severity, int) else by_itself
        text = f"{test} {'failed' if failed else 'warned'}"
        if words:
            text += f": {clean(words, 300)}"
        component = "nvlink" if _of_nvlink(result, test, text) else "gpu"
        yield Complaint(_part(result), clean(text), component, blames)  # type: ignore[arg-type]


def _of_nvlink(result: dict[str, Any], test: str, text: str) -> bool:
    words = f"{result.get('entity_group', '')} {test} {text}".lower()
    return "nvlink" in words or "nvswitch" in words


def _part(result: dict[str, Any]) -> str:
    if "entity_id" in result:
        return f"{clean(result.get('entity_group', 'GPU'), 20)} {clean(result['entity_id'], 20)}"
    ids = clean(result.get("gpu_ids", ""), 60)
    return f"GPU {ids}" if ids else ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))
