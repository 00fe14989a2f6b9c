"""What is missing is said before anything is done, with what to type instead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import INPUT, OK, USAGE, did_you_mean, installing, similar_file

ROOT = Path(__file__).parent.parent
REPO = ROOT / "examples" / "train_repo"
SHOW_HINT = "from schedmate.base.errors import installing; print(installing('ray'))"

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("scipy", "schedulers", "simulate gone.csv --policy fifo,sia --cluster 1x8"),
        ("scipy", "schedulers", "simulate gone.csv --policy gavel --cluster 1x8"),
        ("sklearn", "schedulers", "simulate gone.csv --policy lucid:scores=s.csv --cluster 1x8"),
        ("interpret", "schedulers", "simulate gone.csv --policy sjf --cluster 1x8 --load ga2m"),
        (
            "interpret",
            "schedulers",
            "simulate gone.csv --policy sjf --cluster 1x8 --estimator ga2m",
        ),
        ("interpret", "schedulers", "explain gone.csv"),
        ("scipy", "schedulers", "tune gone.csv --policy sia --try p=-1 --cluster 1x8"),
        ("pyarrow", "parquet", "traces convert gone.csv -o new.parquet"),
        ("pyarrow", "parquet", "traces check gone.parquet"),
        ("pyarrow", "parquet", "traces synthesize venus -o new.parquet"),
        ("ray", "ray", "simulate gone.csv --policy fifo --cluster 1x8 --ray local"),
        ("ray", "ray", "triage gone --ray local"),
        ("FlagEmbedding", "bge", "analyze gone"),
    ],
)
def test_extras_are_asked_for_first(tmp_path: Path, package: str, extra: str, command: str) -> None:
    # nothing that the command reads is there: what is said of the extra comes before
    (tmp_path / "s.csv").write_text("gpu_util,gmem_util,gmem,amp,label\n1,1,1,0,0\n")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(names=[package]))
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", *command.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "SCHEDMATE_EMBEDDER": "bge"},
    )
    assert done.returncode == USAGE, done.stderr
    last = done.stderr.splitlines()[-1]
    assert package in last
    if "--policy" in command and "--estimator" not in command and "--load" not in command:
        named = re.search(r"policy (\w+)|learning scores", last)
        assert named is not None or "--ray" in command, last
    assert f"pip install -e '{ROOT}[{extra}]'" in last


def test_the_hint_is_for_where_schedmate_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert installing("ray").endswith("pip install -e '.[ray]'")
    monkeypatch.chdir(tmp_path)
    assert installing("ray").endswith(f"pip install -e '{ROOT}[ray]'")
    installed = tmp_path / "site-packages" / "schedmate"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    (installed / "base").mkdir()
    (installed / "base" / "__init__.py").touch()
    (installed / "base" / "errors.py").write_text(
        (ROOT / "schedmate" / "base" / "errors.py").read_text()
    )

    def shown() -> str:
        env = {**os.environ, "PYTHONPATH": str(installed.parent)}
        command = [sys.executable, "-c", SHOW_HINT]
        return subprocess.check_output(command, text=True, cwd=tmp_path, env=env)

    assert shown().endswith("pip install 'schedmate[ray]'\n")
    about = installed.with_name("schedmate-9.dist-info")  # as `pip install .` leaves it
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: schedmate\nVersion: 9\n")
    (about / "direct_url.json").write_text(f'{{"url": "{ROOT.as_uri()}", "dir_info": {{}}}}')
    assert shown().endswith(f"pip install '{ROOT}[ray]'\n")


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("lucd", ["lucid", "sjf"], "; did you mean lucid?"),
        ("Lucid", ["lucid"], "; did you mean lucid?"),
        ("sfj", ["lucid", "sia", "sjf"], "; did you mean sjf?"),
        ("resnet5", ["resnet50", "resnet18", "vit"], "; did you mean resnet50 or resnet18?"),
        ("horovod", ["lucid", "sjf"], ""),
        ("", ["lucid"], ""),
        ("x", [], ""),
    ],
)
def test_the_nearest_names(name: str, known: list[str], hint: str) -> None:
    assert did_you_mean(name, known) == hint


def test_the_nearest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs.csv").touch()
    assert similar_file(tmp_path / "job.csv") == f"; did you mean {tmp_path}/jobs.csv?"
    assert similar_file(tmp_path / "gone" / "job.csv") == ""
    monkeypatch.chdir(tmp_path)
    assert similar_file("job.csv") == "; did you mean jobs.csv?"


@pytest.mark.parametrize(
    ("command", "meant", "code"),
    [
        ("analyse", "'analyze'", USAGE),
        ("analyze repos", "repo", INPUT),
        ("diagnose two.lgo", "two.log", INPUT),
        ("track two.lgo", "two.log", INPUT),
        ("triage job.csv", "jobs.csv", INPUT),
        ("simulate trace.cvs --policy fifo --cluster 1x8", "trace.csv", INPUT),
        ("simulate trace.csv --policy fifoo --cluster 1x8", "fifo", USAGE),
        ("simulate trace.csv --policy lucid:capacty=1 --cluster 1x8", "capacity", USAGE),
        ("simulate trace.csv --policy sjf --cluster 1x8 --estimator user-meen", "user-mean", USAGE),
        ("simulate trace.csv --policy sjf --cluster 1x8 --workloads lucd", "lucid", USAGE),
        ("tune trace.csv --policy lucidd --cluster 1x8", "lucid", USAGE),
        ("traces synthesize venis", "venus", USAGE),
        ("rules list ncll", "nccl", OK),
    ],
)
def test_a_slip_of_the_pen_is_told(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    meant: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("two.log", "jobs.csv"):
        (tmp_path / name).touch()
    (tmp_path / "repo").mkdir()
    (tmp_path / "trace.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,9,1\n")
    result = cli(*command.split())
    assert result.code == code
    assert f"id you mean {meant}?" in result.err


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("python train.py --config-name confg", "config"),
        ("python train.py model=resnet5", "resnet50 or resnet18"),
        ("python train.py optim=adamwe", "adamw"),
        ("python data.py --config configs/gpt_smal.yaml", "configs/gpt_small.yaml"),
        ("python flags.py --cfg configs/gpt_smal.yaml", "configs/gpt_small.yaml"),
    ],
)
def test_a_configuration_that_is_not_there(
    cli: Cli, tmp_path: Path, command: str, meant: str
) -> None:
    import shutil

    repo = Path(shutil.copytree(REPO, tmp_path / "repo"))
    (repo / "configs").mkdir()
    (repo / "configs" / "gpt_small.yaml").write_text("epochs: 3\n")
    (repo / "data.py").write_text(
        "import argparse, yaml\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--config')\nwith open(parser.parse_args().config) as f:\n"
        "    settings = yaml.safe_load(f)\n"
    )
    (repo / "flags.py").write_text("import mylib\nmylib.main()\n")
    result = cli("analyze", str(repo), "--command", command)
    assert result.code == 0
    assert f"did you mean {meant}?" in result.out


USED = "gpu_util_pct,gmem_util_pct,gmem_mb\n"


@pytest.mark.parametrize("policy", ["lucid", "horus"])
def test_a_policy_that_packs_says_what_it_lacks(cli: Cli, tmp_path: Path, policy: str) -> None:
    trace, page = tmp_path / "trace.csv", tmp_path / "report.html"
    rows = [f"j{n},{n},600,1,u" for n in range(4)]
    trace.write_text("job_id,submit_s,duration_s,gpus,user\n" + "\n".join(rows) + "\n")
    said = "the trace does not say how jobs use their GPUs, so none of them can be packed"
    command = ["simulate", str(trace), "--policy", f"fifo,{policy}", "--cluster", "1x2"]
    text = cli(*command, "--report", str(page))
    assert text.code == 0, text.err
    assert f"{policy}: {said}" in text.out
    assert said in page.read_text()
    assert said in cli(*command, "--json").out
    assert said not in cli(*command[:3], "fifo,lucid:capacity=-1", *command[4:]).out
    used = [f"{row},20,10,{2000 if n % 2 else ''}" for n, row in enumerate(rows)]
    trace.write_text("job_id,submit_s,duration_s,gpus,user," + USED + "\n".join(used) + "\n")
    some = cli(*command)
    assert said not in some.out, some.err
