"""`--html` and `--format markdown` of `track`, `diagnose` and `analyze`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Cli

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("track {log}", ("iteration 40 of 90", "Loss over iterations", "400 ms")),
        ("diagnose {log}", ("Key Error · script", "Lines of the log", "decided")),
        ("analyze {repo} -c 'python train.py'", ("no similar job", "job_kind", "Fields")),
    ],
)
def test_a_page_says_what_the_terminal_does(
    words: str, told: tuple[str, ...], tmp_path: Path, cli: Cli
) -> None:
    log, page = tmp_path / f"{HOSTILE.replace('/', '')}.out", tmp_path / "page.html"
    step = "iteration {0}/ 90 | lm loss: {1} | elapsed time per iteration (ms): 400.0\n"
    ending = f"Traceback (most recent call last):\nKeyError: '{HOSTILE}'\n"
    log.write_text("".join(step.format(n, 9 / n) for n in range(1, 41)) + ending)
    repo = tmp_path / HOSTILE.partition("/")[0]
    repo.mkdir()
    (repo / "train.py").write_text("import torch\nmodel = torch.nn.Linear(1, 1)\n")
    arguments = [one.strip("'") for one in words.format(log=log, repo=repo).split(maxsplit=3)]
    found = cli(*arguments, "--html", str(page), "--format", "markdown")
    text = page.read_text(encoding="utf-8")
    assert f"page: {page}" in found.err
    assert found.out.startswith("**")
    assert found.out.splitlines()[0].strip("*").replace("\\", "") in text
    assert [one for one in told if one not in text] == []
    assert "<script>alert" not in text
    assert text.count("<script>") == 1


@pytest.mark.parametrize(
    "words", [("track", "-"), ("track", "--compare", "a", "b"), ("analyze", "--batch", "x")]
)
def test_a_page_is_of_one_answer(words: tuple[str, ...], cli: Cli) -> None:
    assert cli(*words, "--html", "page.html").code == 2
    assert not Path("page.html").exists()
