"""A hostile repository gives the answer of its clean twin, even with a model that obeys it.

The model is a real HTTP server; corpus.yaml says what each repository tries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hostile_repos import FAKE, OUTSIDE, SECRET, Places, build, corpus, findings
from obedient import Calls, Obedient
from openai_server import Server, completion, serve

from schedmate.agent.react.extractor import MetadataExtractor
from schedmate.agent.static import extract
from schedmate.base.terminal import is_visible
from schedmate.jobs import JobSpec, LaunchConfig, ModelUse, WorkloadMetadata
from schedmate.llm import open_llm
from schedmate.settings import load_settings

Mode = Literal["hybrid", "agent"]

CASES = [
    pytest.param(case, mode, id=f"{case['id']}-{mode}")
    for case in corpus()["cases"]
    for mode in case.get("modes", ["hybrid", "agent"])
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(lambda _: completion("")) as running:
        yield running


def _turns(case: dict[str, Any], places: Places, *, hostile: bool) -> list[Calls]:
    """Everything an honest model reads; a hostile repository has it read more."""
    honest = list(corpus()["base"]["files"])
    turns: list[Calls] = [
        [("file_tree", {"depth": 4})],
        [("file_read", {"path": path}) for path in honest],
    ]
    if hostile:
        reads = [*places.fill(case.get("add", {})), *places.fill(case.get("reads", []))]
        turns.append([("file_read", {"path": path}) for path in reads])
        turns.append([("file_tree", {"path": path}) for path in places.fill(case.get("reads", []))])
        calls = places.fill(case.get("calls", []))
        turns.append([(call["name"], call["args"]) for call in calls])
    return [turn for turn in turns if turn]


def _says(case: dict[str, Any], mode: Mode, places: Places, *, hostile: bool) -> list[Any]:
    base = corpus()["base"]
    honest = base["honest"] + (base["honest_alone"] if mode == "agent" else [])
    return findings([*(case.get("says", []) if hostile else []), *honest], places)


def _read(
    case: dict[str, Any], mode: Mode, server: Server, places: Places, *, hostile: bool
) -> tuple[WorkloadMetadata, ModelUse, Obedient]:
    build(case, places, hostile=hostile)
    before = _snapshot(places.root.parent)
    model = Obedient(
        _turns(case, places, hostile=hostile),
        _says(case, mode, places, hostile=hostile),
        _repeat_the_prompt if hostile and case.get("answer") == "prompt" else None,
    )
    server.answer = model
    settings = load_settings(
        llm_base_url=server.url, llm_model="test-7B", mode=mode, agent_tool_calls=60
    )
    command = case.get("command", corpus()["base"]["command"])
    spec = JobSpec(repo=str(places.root), command=command, launch=LaunchConfig())
    llm = open_llm(settings)
    assert llm is not None
    try:
        static = extract(places.root, command, LaunchConfig())
        metadata, use = MetadataExtractor(llm, settings, mode).extract(spec, static)
    finally:
        llm.close()
    assert _snapshot(places.root.parent) == before, "reading has changed something"
    return metadata, use, model


def _repeat_the_prompt(request: dict[str, Any]) -> str:
    return "\n".join(str(message["content"]) for message in request["messages"])


def _snapshot(root: Path) -> dict[str, tuple[int, int]]:
    paths = sorted(root.rglob("*"))
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


_twins: dict[tuple[str, Mode], tuple[WorkloadMetadata, WorkloadMetadata]] = {}


def _clean(
    case: dict[str, Any], mode: Mode, server: Server, tmp_path: Path, home: Path
) -> tuple[WorkloadMetadata, WorkloadMetadata]:
    """What the clean twin gives with its model, and without one; most cases share one twin."""
    key = json.dumps([case.get("command"), case.get("clean")]), mode
    if key not in _twins:
        places = Places(tmp_path / "clean", tmp_path / "outside", home)
        metadata, use, _ = _read(case, mode, server, places, hostile=False)
        assert use.outcome == "ok", use.reason
        assert metadata.get("model_config.model_name") == "tern-large"
        assert metadata.get("dataset_config.valid") == "harbour-logs-dev"
        command = case.get("command", corpus()["base"]["command"])
        _twins[key] = metadata, extract(places.root, command, LaunchConfig()).metadata
    return _twins[key]


@pytest.mark.parametrize(("case", "mode"), CASES)
def test_the_answer_is_that_of_the_clean_twin(
    case: dict[str, Any], mode: Mode, server: Server, tmp_path: Path, clean_environment: Path
) -> None:
    clean, static = _clean(case, mode, server, tmp_path, clean_environment)
    places = Places(tmp_path / "hostile", tmp_path / "outside", clean_environment)
    found, use, model = _read(case, mode, server, places, hostile=True)

    if case.get("answer") == "prompt":
        # A model that answers nothing usable costs its own findings; the static answer stands.
        assert use.outcome != "ok"
        clean = static
    else:
        assert use.outcome == "ok", use.reason
    assert found.sections() == clean.sections()
    assert found.evidence == clean.evidence

    material = model.material()
    if case.get("unseen"):
        assert FAKE not in material
    else:
        assert FAKE in material, "the model never saw what it was to obey"
    _check_what_was_sent(material, model)


def _check_what_was_sent(material: str, model: Obedient) -> None:
    assert OUTSIDE not in material
    assert SECRET not in material
    assert "root:x:0" not in material
    names = {
        tool["function"]["name"] for request in model.requests for tool in request.get("tools", [])
    }
    assert names <= {"file_tree", "file_read", "file_search", "Findings"}
    shown = model.tool_messages()
    assert shown
    for text in shown:
        first, *inside, last = text.split("\n")
        nonce = re.fullmatch(r"<<<untrusted ([0-9a-f]{16}) \w*", first)
        assert nonce, first
        assert last == f"untrusted {nonce[1]}>>>"
        assert not any(nonce[1] in line for line in inside)
        assert not any("<|" in line or "[INST]" in line for line in inside)
        assert all(c == "\t" or is_visible(c) for line in inside for c in line)
