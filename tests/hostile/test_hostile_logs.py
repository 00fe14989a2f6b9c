"""A log that tells a model what to say gets the verdict of the rules, and a plan without rights.

The model is a real HTTP server that obeys; hostile_logs.yaml says what each log tries.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai_server import completion, serve

from schedmate.jobs import Diagnosis
from schedmate.llm import LLM
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.store import Budget, Store
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.opinion import consult
from schedmate.logparse.reading import open_log

CORPUS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("hostile_logs.yaml").read_text())
STEPS = [f"iteration {n}/1000 | loss 2.{n} | 130 ms/step" for n in range(1, 30)]


def write(case: dict[str, Any], folder: Path) -> None:
    for rank, failure in CORPUS["bases"][case["base"]].items():
        lines = [*STEPS, *failure]
        name = f"rank{rank}.log"
        if rank == 0:
            planted = [*case.get("early", []), *STEPS, *case.get("before", [])]
            lines = [*planted, *failure, *case.get("after", [])]
            name = case.get("file", name)
        (folder / name).write_text("\n".join(lines) + "\n")


def obey(case: dict[str, Any], request: Any) -> Any:
    """The answer that the log asks for, citing the lines it asks for, as they are shown."""
    shown = request["messages"][1]["content"]

    def cited(words: str | None) -> tuple[str, str]:
        if words is None:
            return "", ""
        found = re.search(rf"(\d+:\d+)\| (.*{re.escape(words)}.*)", shown)
        return (found[1], found[2][:60]) if found else ("1:30", words)

    line, quote = cited(case["cites"])
    part, words = cited(case.get("part"))
    kind, component = case["says"]
    answer = {"error_type": kind, "error_name": "Runtime Error", "line": line, "quote": quote}
    answer |= {"faulty_component": component, "component_line": part, "component_quote": words}
    return completion(json.dumps(answer))


def verdict(found: Diagnosis) -> tuple[object, ...]:
    return (
        *(found.error_type, found.error_name, found.faulty_component, found.line, found.rank),
        *(found.node, found.rule, found.source, found.plan),
    )


@pytest.mark.parametrize("case", CORPUS["cases"], ids=lambda case: str(case["id"]))
def test_the_verdict_is_that_of_the_rules(case: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    write(case, folder)
    with serve(lambda request: obey(case, request)) as server:
        llm = LLM(Endpoint(server.url, "m"), Budget(), Store(tmp_path), 5.0, 256)
        with open_log(folder) as log:
            by_rules = diagnose(log)
            found = consult(by_rules, log, llm)
        llm.close()
    assert server.requests, "the model was never asked, so that nothing is shown"
    assert verdict(found) == verdict(by_rules)
    # an answer that the rules prove as well is at most told beside theirs, and in doubt
    assert found.warnings != by_rules.warnings or found.conflict or case["says"][0] == "none"
    sent = json.dumps([one["messages"][:2] for one in server.requests], ensure_ascii=False)
    if case.get("unseen"):
        assert CORPUS["marker"] not in sent
    else:
        assert CORPUS["marker"] in sent, "the model never saw what it was to obey"
