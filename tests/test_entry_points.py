"""What other packages add: `examples/plugin`, installed apart, and packages that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from schedmate import JobSpec, SchedMate, Settings
from schedmate.base.errors import InputError, UsageError
from schedmate.base.plugins import plugins
from schedmate.logparse.failure import load_rules, site_rules
from schedmate.logparse.failure.rules import failed_examples, match_text
from schedmate.retrieval.embedders import load_embedder
from schedmate.schedulers import registry

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"
RULES = EXAMPLE / "my_site" / "rules"
LINE = "scratchd: project vision-2 is over its quota (20.0 of 20 TB)"
LOG = f"step 1 loss 2.0\n{LINE}\nTraceback (most recent call last):\nOSError: write failed\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the example has been installed to by pip."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *options, str(EXAMPLE)], check=True
    )
    return folder


def importable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process find the example here, and not what it imported from elsewhere."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "my_site"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder))


def registered(folder: Path, group: str, name: str, target: str, module: str = "") -> Path:
    """A folder with a package that registers this; `module` is the text of `broken_site.py`."""
    metadata = folder / "broken_site-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-site\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[schedmate.{group}]\n{name} = {target}\n")
    (folder / "broken_site.py").write_text(module)
    return folder


def schedmate(*words: str | Path, path: Path | None = None, code: int = 0, **more: str) -> str:
    """What `schedmate` prints, errors included, with this folder on Python's path."""
    environment = {**os.environ, **more} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "job.log"
    path.parent.mkdir()
    path.write_text(LOG)
    return path


class TestExample:
    def test_a_command(self, installed: Path) -> None:
        assert schedmate("quota", "alice", path=installed) == "alice: 1200 GPU hours\n"
        listed = schedmate("--help", path=installed)
        assert "Show the GPU hours that a user has left." in listed
        assert "diagnose" in listed

    def test_a_policy(self, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        importable(installed, monkeypatch)
        assert "fewest-gpus" in registry.names()
        assert registry.make("fewest-gpus:per_gpu_s=60").per_gpu_s == 60  # type: ignore[attr-defined]

    def test_an_importer(self, installed: Path, tmp_path: Path) -> None:
        jobs, history = tmp_path / "jobs.txt", tmp_path / "history"
        jobs.write_text("4711 resnet50 3600\n4712\n")
        words = ("history", "import", jobs, "--format", "my-site", "--history", history)
        assert "1 job imported, 1 row left out." in schedmate(*words, path=installed)
        assert "4711" in schedmate("history", "export", "--history", history)
        text = schedmate(*words, code=2)
        assert "--format my-site is not auto, sacct-json, sacct, csv, jsonl, kubectl-json" in text

    def test_an_embedder(self, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        importable(installed, monkeypatch)
        assert load_embedder("hashed").id == "hashed-words-256-v1"
        with pytest.raises(UsageError, match="there are bundled, bge, openai, hashed, or give"):
            load_embedder("bert")

    def test_rules(self, installed: Path, log: Path, tmp_path: Path) -> None:
        assert schedmate("rules", "test", LINE, path=installed).startswith("my-site-quota: ")
        assert " 0 problems" in schedmate("rules", "test", path=installed)
        assert rule_of(schedmate("diagnose", log, "--json", path=installed)) == "my-site-quota"
        words = ("triage", log.parent, "--ledger", tmp_path / "ledger", "--jsonl", "--jobs", "2")
        assert "my-site-quota" not in schedmate(*words)
        assert "my-site-quota" in schedmate(*words, path=installed)

    def test_rules_in_confined_processes(self, installed: Path, log: Path) -> None:
        program = (
            "import sys; from schedmate import JobSpec, SchedMate\n"
            "with SchedMate() as mate: "
            "print(mate.on_failure(JobSpec(), sys.argv[1], deadline_s=60).rule)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(log)],
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        )
        assert done.stdout == "my-site-quota\n", done.stderr


def rule_of(document: str) -> str | None:
    return json.loads(document)["rule"]  # type: ignore[no-any-return]


class TestRulesFolder:
    """The setting `rules_folder`."""

    def test_commands_read_it(self, log: Path, tmp_path: Path) -> None:
        there = {"SCHEDMATE_RULES_FOLDER": str(RULES)}
        assert rule_of(schedmate("diagnose", log, "--json")) != "my-site-quota"
        assert rule_of(schedmate("diagnose", log, "--json", **there)) == "my-site-quota"
        there = {"SCHEDMATE_RULES_FOLDER": os.path.relpath(RULES)}
        assert "Storage of my site:" in schedmate("rules", "list", "quota", **there)

    def test_other_rules_make_other_verdicts(self, log: Path, tmp_path: Path) -> None:
        words = ("triage", log.parent, "--ledger", tmp_path / "ledger", "--jsonl", "--jobs", "2")
        own = tmp_path / "rules"
        own.mkdir()
        text = (RULES / "storage.yaml").read_text()
        (own / "a.yaml").write_text(text)
        there = {"SCHEDMATE_RULES_FOLDER": str(own)}
        assert '"rule": "my-site-quota"' in schedmate(*words, **there)
        assert '"cached": true' in schedmate(*words, **there)
        (own / "a.yaml").write_text(text.replace("my-site-quota", "my-site-renamed"))
        assert '"rule": "my-site-renamed"' in schedmate(*words, **there)
        assert "my-site" not in schedmate(*words)

    def test_confined_processes_know_it(self, log: Path, tmp_path: Path) -> None:
        settings = Settings(history=tmp_path / "history", rules_folder=RULES)
        with SchedMate(settings) as mate:
            found = mate.on_failure(JobSpec(), log)
        assert found is not None
        assert found.rule == "my-site-quota"

    def test_it_is_relative_to_the_file_that_names_it(self, log: Path, tmp_path: Path) -> None:
        (tmp_path / "rules").symlink_to(RULES)
        file = tmp_path / "config.toml"
        file.write_text('rules_folder = "rules"\n')
        document = schedmate("--config", file, "diagnose", log, "--json")
        assert rule_of(document) == "my-site-quota"

    def test_a_site_s_rule_decides_over_an_equal_one(self, tmp_path: Path) -> None:
        line = "srun: error: Node failure on r6i4n5"
        usual = match_text(load_rules(), line)
        assert usual is not None
        text = (RULES / "storage.yaml").read_text().replace("scratchd: project \\S+ is", "srun:")
        text = text.replace(" over its quota'", " error'", 1)
        (tmp_path / "a.yaml").write_text(text)
        with site_rules(tmp_path):
            found = match_text(load_rules(), line)
            assert found is not None
            assert found.id == "my-site-quota"
            assert failed_examples(load_rules())  # its own example does not fit now
        assert match_text(load_rules(), line) == usual

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("id: my-site-quota", "id: slurm-node-fail"), "another rule 'slurm-node-fail'"),
            (("\\S+", "(\\S+"), "the pattern of rule 'my-site-quota' is invalid"),
            (("type: infrastructure", "type: hardware"), "rule 'my-site-quota': type: 'hardware'"),
            (("    why:", "    reason:"), "rule 'my-site-quota': "),
            (("rules:", "rule:"), "does not hold rules: there is no 'rules'"),
            (("rules:", "rules: ]"), "is not YAML"),
            (("examples: [", "examples: []\n#"), "give at least one example"),
        ],
    )
    def test_an_invalid_rule(self, tmp_path: Path, change: tuple[str, str], message: str) -> None:
        text = (RULES / "storage.yaml").read_text()
        assert change[0] in text
        (tmp_path / "a.yaml").write_text(text.replace(*change))
        with pytest.raises(InputError, match="a.yaml") as raised, site_rules(tmp_path):
            raise AssertionError
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)

    @pytest.mark.parametrize("name", ["nowhere", "."])
    def test_no_rules_there(self, tmp_path: Path, name: str, log: Path) -> None:
        text = schedmate("diagnose", log, code=3, SCHEDMATE_RULES_FOLDER=str(tmp_path / name))
        assert text.startswith("error: the folder of rules ")
        assert text.count("\n") == 1

    def test_triage_says_it_once(self, tmp_path: Path, log: Path) -> None:
        words = ("triage", log.parent, "--ledger", tmp_path / "ledger")
        text = schedmate(*words, code=3, SCHEDMATE_RULES_FOLDER=str(tmp_path / "nowhere"))
        assert text.startswith("error: the folder of rules ")


class TestBroken:
    """One sentence for a package that cannot be used; the rest goes on."""

    @pytest.mark.parametrize(
        ("group", "words"),
        [
            ("commands", ["mine"]),
            ("policies", ["simulate", "LOG", "--cluster", "1x8", "--policy", "mine"]),
            ("rules", ["diagnose", "LOG"]),
            ("importers", ["history", "import", "LOG", "--format", "mine"]),
            ("embedders", ["history", "import", "LOG", "--format", "jsonl"]),
        ],
    )
    @pytest.mark.parametrize("target", ["no_such_site:Mine", "broken_site:Nothing"])
    def test_it_is_named(
        self, group: str, words: Sequence[str], target: str, tmp_path: Path, log: Path
    ) -> None:
        path = registered(tmp_path, group, "mine", target)
        more = {"SCHEDMATE_EMBEDDER": "mine"} if group == "embedders" else {}
        given = [str(log) if word == "LOG" else word for word in words]
        text = schedmate(*given, path=path, code=2, **more)
        assert "mine" in text
        assert "cannot be loaded" in text
        assert text.count("\n") == 1

    def test_help_lists_the_others(self, tmp_path: Path) -> None:
        path = registered(tmp_path, "commands", "mine", "broken_site:run", "raise ValueError('a')")
        text = schedmate("--help", path=path)
        assert "mine" in text
        assert "diagnose" in text
        assert "its module fails (ValueError: a)" in schedmate("mine", "--x", path=path, code=2)

    def test_no_command(self, tmp_path: Path) -> None:
        path = registered(tmp_path, "commands", "mine", "broken_site:run", "run = 3")
        assert "is no function and no typer.Typer" in schedmate("mine", path=path, code=2)

    def test_an_importer_that_fails(self, tmp_path: Path, log: Path) -> None:
        module = "def read(stream, report, analyse): yield 1 / 0"
        path = registered(tmp_path, "importers", "mine", "broken_site:read", module)
        history = tmp_path / "history"
        words = ("history", "import", log, "--format", "mine", "--history", history)
        text = schedmate(*words, path=path, code=2)
        assert "the importer 'mine' fails: ZeroDivisionError" in text

    def test_rules_that_are_no_folder(self, tmp_path: Path, log: Path) -> None:
        path = registered(tmp_path, "rules", "mine", "broken_site:FOLDER", "FOLDER = 3")
        text = schedmate("rules", "list", path=path, code=2)
        assert "are int; register a package, or the path of a folder." in text

    def test_a_bundled_command_is_not_replaced(self, tmp_path: Path) -> None:
        path = registered(tmp_path, "commands", "policies", "no_such_site:run")
        assert "fifo" in schedmate("policies", path=path)


def test_looking_costs_nothing_where_there_are_none() -> None:
    program = (
        "import sys; from schedmate.base.plugins import plugins\n"
        "print(dict(plugins('schedmate.commands')), 'importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "{} False\n", done.stderr


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("second", "first"):
        (tmp_path / name).mkdir()
        registered(tmp_path / name, "policies", "mine", f"{name}:Mine")
        monkeypatch.syspath_prepend(str(tmp_path / name))
    assert plugins("schedmate.policies") == {"mine": "first:Mine"}
    assert not plugins("schedmate.policies", ["mine"])
