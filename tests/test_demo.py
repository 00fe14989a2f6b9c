"""What a newcomer sees first: `make demo`, the README, the toy scheduler."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cli_runner import Cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


SCHEDMATE = str(Path(sys.executable).with_name("schedmate"))


def test_the_demo_leaves_what_the_next_command_can_use(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    env = {name: text for name, text in os.environ.items() if name not in ("HOME", "XDG_DATA_HOME")}
    env |= {"HOME": str(tmp_path / "home"), "SCHEDMATE_TOP_K": "nonsense"}
    done = subprocess.run(
        [SCHEDMATE, "demo"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "40 jobs imported" in done.stderr
    shown = [line[2:] for line in done.stdout.splitlines() if line.startswith("$ schedmate ")]
    assert [line.split()[1] for line in shown] == [
        *("history", "analyze", "track", "diagnose", "triage", "simulate")
    ]
    assert "run time about 11 min 45 s" in done.stdout
    assert not list((tmp_path / "home").rglob("*history*")), "the user's own data was touched"

    [said] = [line for line in done.stdout.splitlines() if line.startswith("export ")]
    tried = done.stdout.partition(said)[2].split("\n\n", 1)[1].splitlines()
    first = [line.partition("    # ")[0] for line in tried[:3]]
    script = "\n".join(["set -e", said, *first, "schedmate history stats"])
    after = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert after.returncode == 0, after.stderr
    assert "40 jobs: 31 COMPLETED" in after.stdout
    assert (tmp_path / "triage.html").is_file()


def test_the_demo_leaves_a_folder_of_others_alone(cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / "demo" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("work")
    done = cli("demo", str(mine.parent))
    assert done.code == 3
    assert "holds other files" in done.err
    assert "schedmate demo FOLDER" in done.err
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]
    done = cli("demo", str(mine / "below"))
    assert done.code == 3
    assert "cannot write" in done.err


def test_the_readme_shows_the_toy_scheduler() -> None:
    source = (ROOT / "examples" / "toy_scheduler.py").read_text()
    blocks = [part.partition("\n```")[0] for part in README.split("```python\n")[1:]]
    [shown] = [block for block in blocks if "mate.on_submit(spec)" in block]
    assert shown in source


def toy_scheduler(history: Path, deadline_s: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "toy_scheduler.py", history],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SCHEDMATE_DEADLINE_S": deadline_s},
    )


def test_the_toy_scheduler_runs(example_history: Path) -> None:
    done = toy_scheduler(example_history, "60")
    assert done.stdout.split() == ["short", "long", "unknown"]


def test_the_toy_scheduler_says_which_estimates_came_too_late(example_history: Path) -> None:
    done = toy_scheduler(example_history, "0.0001")
    assert done.stdout.split() == ["long", "unknown", "short"], "as they came"
    for name, said in zip(done.stdout.split(), done.stderr.splitlines(), strict=True):
        assert said.startswith(f"no estimate for job {name}")


def test_the_toy_scheduler_can_be_taken_elsewhere(example_history: Path, tmp_path: Path) -> None:
    toy = shutil.copy(ROOT / "examples" / "toy_scheduler.py", tmp_path)
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    alone = run([sys.executable, toy, example_history])
    assert alone.returncode == 1
    assert alone.stdout == "", "no order that means nothing"
    assert "python" in alone.stderr
    assert "demo/history demo/train_repo" in alone.stderr
    named = run(
        [sys.executable, toy, example_history, ROOT / "examples" / "train_repo"],
        env={**os.environ, "SCHEDMATE_DEADLINE_S": "60"},
    )
    assert named.stdout.split() == ["short", "long", "unknown"]


def test_links_in_the_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith(("http", "results/")):  # results/: made with the site
                assert (page.parent / target).exists(), f"{page.name}: {target}"
