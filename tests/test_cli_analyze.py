"""`schedmate analyze`: one job, as text and as JSON."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli, Output
from openai_server import completion, serve

ROOT = Path(__file__).parent.parent
REPO = ROOT / "examples" / "train_repo"
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "analyze-v1.schema.json").read_text())
EVIL = "\x1b]0;owned\x07[bold]m\x1b[31module[/bold]\u202e"


@pytest.fixture
def analyze(cli: Cli, example_history: Path) -> Cli:
    """`schedmate analyze` with the example history."""

    def run(*arguments: str) -> Output:
        return cli("analyze", "--history", str(example_history), *arguments)

    return run


def document(output: Output) -> dict[str, Any]:
    assert output.code == 0, output.err
    parsed = json.loads(output.out)
    jsonschema.validate(parsed, SCHEMA)
    assert isinstance(parsed, dict)
    return parsed


def write_repo(directory: Path, script: str) -> str:
    directory.mkdir()
    (directory / "train.py").write_text(script)
    return str(directory)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_text_leads_with_the_answer(analyze: Cli) -> None:
    result = analyze(str(REPO), "--command", COMMAND)
    assert result.code == 0
    what, how_long, why, width = result.out.splitlines()[:4]
    assert what.lower() == "resnet50 · cifar10 · 60 epochs · 4 gpus"
    assert how_long.startswith("run time about 1")
    assert "(80 % interval: " in how_long
    assert "GPU utilisation" in how_long
    assert why.startswith("based on ")
    assert "example-0009" in why
    assert width.startswith("interval: covers 80 % of such jobs; its width reflects how much ")


def test_text_names_the_source_of_every_field(analyze: Cli) -> None:
    lines = analyze(str(REPO), "--command", COMMAND).out.splitlines()
    rows = {line.split()[0]: line for line in lines if "_config." in line}
    assert "conf/optim/sgd.yaml:2" in rows["training_config.lr"]
    assert "on the command line" in rows["training_config.iters"]
    assert "imageclf/data.py:23" in rows["dataset_config.train"]


def test_unsure_values_are_marked_and_can_be_left_out(analyze: Cli, tmp_path: Path) -> None:
    script = "import torch\nclass Actor(torch.nn.Module): pass\nmodel = Actor()\n"
    repo = write_repo(tmp_path / "repo", script)
    text = analyze(repo, "--command", "python train.py").out
    rows = {line.split()[0]: line for line in text.splitlines() if "_config." in line}
    assert rows["model_config.model_name"].endswith("? unsure")
    assert "? unsure: model_config.model_name Actor" in text
    assert text.startswith("Actor (unsure) · ")
    marked = document(analyze(repo, "--command", "python train.py", "--json"))
    assert marked["unsure"]
    assert marked["estimate"]["unsure"] == marked["unsure"]
    words = ("--min-confidence", "0.75", "--json")
    sure = document(analyze(repo, "--command", "python train.py", *words))
    assert sure["unsure"] == []
    assert sure["metadata"]["model_config"]["model_name"] is None
    assert any("0.75" in line and "model_name" in line for line in sure["warnings"])


def test_the_command_may_come_after_dashes(analyze: Cli, cli: Cli) -> None:
    plain = cli("analyze", REPO, "-c", "python train.py model=resnet18 --flag").out
    assert cli("analyze", REPO, "--", "python", "train.py", "model=resnet18", "--flag").out == plain


def test_json_says_the_same(analyze: Cli) -> None:
    parsed = document(analyze(str(REPO), "--command", COMMAND, "--json", "--job-id", "17"))
    assert parsed["job"]["job_id"] == "17"
    assert parsed["metadata"]["model_config"]["model_name"] == "resnet50"
    assert parsed["metadata"]["training_config"]["iters"] == 60
    assert parsed["launch"]["gpus"] == 4
    assert parsed["evidence"]["training_config.iters"]["source"] == "command"
    assert parsed["history_size"] == 40
    assert parsed["estimate"]["abstained"] is False
    assert "neighbours" not in parsed["estimate"]
    basis = parsed["estimate"]["interval_basis"]
    assert f"interval: {basis['text']}" in analyze(str(REPO), "--command", COMMAND).out
    assert basis["runs"] + basis["cut_short"] == len(parsed["neighbours"])
    assert len(parsed["neighbours"]) >= 1
    assert parsed["source"] == "static"


def test_flags_reach_the_launch(analyze: Cli) -> None:
    flags = ["--gpus", "16", "--nodes", "2", "--gpu-type", "H100", "--time-limit", "1-12:00:00"]
    parsed = document(analyze(str(REPO), "-c", "python train.py", "--json", *flags))
    assert parsed["launch"] == {
        "gpus": 16,
        "nodes": 2,
        "gpu_type": "H100",
        "time_limit_s": 129_600,
    }


def test_top_k_threshold_and_method(analyze: Cli) -> None:
    plain = ["--json", "--method", "mean", "--top-k", "1"]
    parsed = document(analyze(str(REPO), "--command", COMMAND, *plain))
    assert parsed["estimate"]["method"] == "mean"
    assert len(parsed["neighbours"]) == 1
    other = COMMAND.replace("resnet50", "vit_small")
    strict = document(analyze(str(REPO), "--command", other, "--json", "--threshold", "0.999"))
    assert strict["estimate"]["abstained"] is True
    assert strict["estimate"]["duration_s"] is None


def test_more_gpus_than_any_past_job_had_is_said(analyze: Cli) -> None:
    here = document(analyze(str(REPO), "--command", COMMAND, "--json"))["estimate"]
    beyond = document(analyze(str(REPO), "--command", COMMAND, "--json", "--gpus", "64"))
    (far,) = beyond["estimate"]["extrapolated"]
    assert here["extrapolated"] == []
    assert (far["quantity"], far["asked"], far["most"], far["factor"]) == ("GPUs", 64, 4, 16)
    width = [one["duration_p90_s"] / one["duration_p10_s"] for one in (here, beyond["estimate"])]
    assert width[1] > 2 * width[0]
    text = analyze(str(REPO), "--command", COMMAND, "--gpus", "64").out
    assert "extrapolated: neighbours ran on 1 to 4 GPUs, this job asks for 64" in text


def test_far_beyond_every_past_job_is_no_estimate(analyze: Cli) -> None:
    parsed = document(analyze(str(REPO), "--command", COMMAND, "--json", "--gpus", "1024"))
    assert parsed["estimate"]["abstained"] is True
    assert parsed["estimate"]["duration_p50_s"] is None
    assert len(parsed["neighbours"]) == 5
    text = analyze(str(REPO), "--command", COMMAND, "--gpus", "1024").out.splitlines()
    assert text[1] == "no run time from 5 similar jobs among 40 records"
    assert "neighbours ran on 1 to 4 GPUs, this job asks for 1,024: 256 times" in text[2]


def test_no_similar_job_is_said_plainly(analyze: Cli, tmp_path: Path) -> None:
    repo = write_repo(
        tmp_path / "repo",
        "import gymnasium\nenv = gymnasium.make('HalfCheetah-v4')\n"
        "for step in range(1000):\n    env.step(None)\n",
    )
    arguments = [repo, "-c", "python train.py", "--threshold", "0.99"]
    result = analyze(*arguments)
    assert result.code == 0
    assert "no similar job among 40 records" in result.out.splitlines()[1]
    assert result.out.splitlines()[2].startswith("because the closest, ")
    parsed = document(analyze(*arguments, "--json"))
    assert parsed["estimate"]["abstained"] is True
    assert parsed["estimate"]["reason"]
    assert parsed["estimate"]["interval_basis"] is None
    assert analyze(*arguments, "--fail-on-abstain").code == 4


def test_fail_on_abstain_is_0_with_an_estimate(analyze: Cli) -> None:
    assert analyze(str(REPO), "--command", COMMAND, "--fail-on-abstain").code == 0


def test_without_a_history(cli: Cli) -> None:
    result = cli("analyze", str(REPO), "--command", COMMAND)
    assert result.code == 0
    assert result.out.splitlines()[1] == "no similar job among 0 records"


def test_output_file(analyze: Cli, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    result = analyze(str(REPO), "--command", COMMAND, "--json", "-o", str(target))
    assert (result.code, result.out) == (0, "")
    jsonschema.validate(json.loads(target.read_text()), SCHEMA)
    assert list(tmp_path.glob(".out*")) == []


def test_output_that_cannot_be_written(analyze: Cli, tmp_path: Path) -> None:
    result = analyze(str(REPO), "--command", COMMAND, "-o", str(tmp_path / "missing" / "out"))
    assert result.code == 3
    assert "cannot write" in result.err


def test_record_and_finish(analyze: Cli, cli: Cli, example_history: Path) -> None:
    result = analyze(str(REPO), "--command", COMMAND, "--record", "--job-id", "mine")
    assert result.code == 0
    (line,) = [line for line in result.err.splitlines() if "recorded as mine" in line]
    finish = shlex.split(line.partition("schedmate ")[2].replace("SECONDS", "700"))
    assert finish[-2:] == ["--history", str(example_history)]
    finished = cli(*finish)
    assert finished.code == 0, finished.err
    parsed = document(analyze(str(REPO), "--command", COMMAND, "--json"))
    assert parsed["neighbours"][0]["job_id"] == "mine"
    assert parsed["neighbours"][0]["exact"] is True
    assert parsed["history_size"] == 41


def test_recording_one_id_twice_is_refused(analyze: Cli) -> None:
    arguments = [str(REPO), "--command", COMMAND, "--record", "--job-id", "example-0001"]
    result = analyze(*arguments)
    assert result.code == 3
    assert "example-0001" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "name the directory"),
        (["/no/such/repo"], 3, "/no/such/repo"),
        ([__file__, "-c", "python x.py"], 3, "directory"),
        ([str(REPO), "--time-limit", "soon"], 2, "'soon' is not a duration"),
        ([str(REPO), "--gpus", "-1"], 2, "--gpus"),
        ([str(REPO), "--threshold", "7"], 2, "--threshold"),
        ([str(REPO), "--method", "magic"], 2, "magic"),
        ([str(REPO), "--processes", "2"], 2, "--jobs is for"),
        ([str(REPO), "--batch", "-"], 2, "REPO describes one job"),
    ],
)
def test_bad_input(analyze: Cli, arguments: list[str], code: int, words: str) -> None:
    result = analyze(*arguments)
    assert result.code == code
    assert words in result.err
    assert "Traceback" not in result.err


def test_an_empty_repository(analyze: Cli, tmp_path: Path) -> None:
    result = analyze(str(tmp_path), "-c", "python train.py")
    assert result.code == 3
    assert result.err.startswith("error: ")


@pytest.mark.parametrize("where", [".", "repo", "elsewhere"])
def test_a_repositorys_own_settings_are_not_obeyed(
    analyze: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    repo = tmp_path / "repo"
    write_repo(repo, "import torchvision\ntorchvision.models.resnet18()\n")
    (tmp_path / "elsewhere").mkdir()
    with serve(lambda request: completion("stolen")) as server:
        stolen = f'llm_base_url = "{server.url}"\nembedder_base_url = "{server.url}"\n'
        wrong = stolen + 'embedder = "openai"\nhistory = "history"\ntop_k = 0\n'
        for directory in (tmp_path, repo, tmp_path / "elsewhere"):
            (directory / "schedmate.toml").write_text(wrong)
        monkeypatch.chdir(tmp_path / where)
        one = analyze(str(repo), "-c", "python train.py")
        jobs = tmp_path / "jobs.jsonl"
        jobs.write_text(json.dumps({"repo": str(repo), "command": "python train.py"}))
        many = analyze("--batch", str(jobs), "--processes", "1")
        assert server.requests == []
    assert (one.code, many.code) == (0, 0), one.err + many.err
    assert (one.err + many.err).count("schedmate.toml is not read") == 1
    assert not (tmp_path / where / "history").exists()


def test_a_settings_file_that_is_named_is_obeyed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text("top_k = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDMATE_CONFIG", "")  # so that it is put back after the test
    shown = cli("--config", "mine.toml", "config", "show", "--origin")
    assert f"top_k = 7 # {tmp_path / 'mine.toml'}\n" in shown.out
    missing = cli("--config", "none.toml", "config", "show")
    assert missing.code == 2
    assert "none.toml: No such file" in missing.err


def test_a_repository_cannot_control_the_terminal(analyze: Cli, tmp_path: Path) -> None:
    repo = write_repo(
        tmp_path / "repo",
        f"import timm\nmodel = timm.create_model({EVIL!r})\n"
        "for epoch in range(3):\n    print(epoch)\n",
    )
    text = analyze(repo, "-c", f"python train.py --x '{EVIL}'")
    as_json = analyze(repo, "-c", f"python train.py --x '{EVIL}'", "--json")
    for result in (text, as_json):
        assert result.code == 0
        for bad in ("\x1b", "\x07", "\u202e"):
            assert bad not in result.out + result.err
    assert "[bold]module[/bold]" in text.out
    jsonschema.validate(json.loads(as_json.out), SCHEMA)


def test_numbers_json_cannot_hold(analyze: Cli, tmp_path: Path) -> None:
    repo = write_repo(
        tmp_path / "repo",
        "import torch, torchvision\nmodel = torchvision.models.resnet18()\n"
        "torch.optim.SGD(model.parameters(), lr=float('inf'))\n",
    )
    document(analyze(repo, "-c", "python train.py", "--json"))
