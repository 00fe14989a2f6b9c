"""`schedmate diagnose` and `schedmate rules`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from cli_runner import Cli

from schedmate.jobs import Diagnosis

ROOT = Path(__file__).parents[3]

LOG = (
    "iteration 1/ 9 | lm loss: 2.1\n"
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "a.py", line 1, in <module>\n'
    "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered \x1b]0;owned\x07\n"
)


def test_the_answer_comes_first(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(LOG)
    result = cli("diagnose", str(path))
    assert result.code == 0
    first, second, third = result.out.splitlines()[:3]
    assert first == "ECC Error · infrastructure · gpu · rank 1"
    assert second.startswith(f"{path}:2 ")
    assert third.startswith("Plan: Confirm on the node of the failure first")
    assert "drain" in third
    assert "\x1b" not in result.out
    assert "\x07" not in result.out


def test_what_framework_means_is_said_where_it_is_blamed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("step 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n")
    lines = cli("diagnose", str(path)).out.splitlines()
    assert lines[0] == "Out of Memory · framework"
    [meaning] = [line for line in lines if line.startswith("Framework: ")]
    assert "the training stack ran out of a resource" in meaning


def test_what_decided_is_shown_however_deep_the_traceback(cli: Cli, tmp_path: Path) -> None:
    frames = "".join(f'  File "a{n}.py", line {n}, in f\n    call({n})\n' for n in range(30))
    (tmp_path / "job.out").write_text(
        f"step 1\nTraceback (most recent call last):\n{frames}KeyError: 'a'\n"
    )

    lines = cli("diagnose", str(tmp_path / "job.out")).out.splitlines()

    quoted = [line for line in lines if " | " in line]
    assert quoted[0].split(" | ")[1] == "Traceback (most recent call last):"
    assert quoted[-2].split(" | ")[1] == "    call(29)"
    assert quoted[-1].startswith(">")
    assert len(quoted) == 8


def test_lines_of_several_files_say_which(cli: Cli, tmp_path: Path) -> None:
    for rank, text in enumerate(("KeyError: 1", "ncclRemoteError: closed", "KeyError: 2")):
        (tmp_path / f"rank-{rank}.log").write_text(f"step 1\n{text}\n")

    out = cli("diagnose", str(tmp_path)).out

    assert "rank-0.log:2 | KeyError: 1" in out
    assert "rank-2.log:2 | KeyError: 2" in out


def test_json_and_exit_code(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(LOG)
    result = cli("diagnose", str(path), "--json", "--exit-code")
    assert result.code == 6
    document = json.loads(result.out)
    assert document["schema"] == "schedmate.diagnose/v1"
    for key in ("error_type", "error_name", "faulty_component", "line", "rank", "node",
                "evidence", "recoverable", "rule", "plan"):  # fmt: skip
        assert key in document
    assert document["rule"] == "cuda-ecc"


def test_a_healthy_log(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("iteration 1/ 9 | lm loss: 2.1\ntraining is done\n")
    result = cli("diagnose", str(path), "--exit-code")
    assert (result.code, result.out.splitlines()[0]) == (0, "No failure")


def test_what_ended_a_job_on_purpose_is_quoted_once(cli: Cli, tmp_path: Path) -> None:
    for line in (
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-02-14T05:03:41 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-02-14T05:03:41 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-02-14T05:03:41 ***",
        "KeyboardInterrupt",
    ):
        (tmp_path / "job.out").write_text(f"iteration 1/ 9 | lm loss: 2.1\n{line}\n")
        out = cli("diagnose", str(tmp_path / "job.out")).out
        assert out.startswith("No failure: ")
        assert out.count(line) == 1


def test_without_a_failure_the_headline_is_said_once(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("iteration 1/ 9 | lm loss: 2.1\ntraining is done\n")
    assert cli("diagnose", str(path)).out.splitlines()[:2] == [
        "No failure",
        f"Line 2 of {path} says that the job finished.",
    ]
    path.write_text("iteration 1/ 9 | lm loss: 2.1\n")
    lines = cli("diagnose", str(path)).out.splitlines()
    assert lines[0] == "No failure found, but no successful end either"
    assert lines[1].startswith("Plan: ")


def test_no_failure_is_said_with_the_line_that_shows_it(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    steps = "".join(f"step {n}/40 | loss 2.1 | 0.2 s/it\n" for n in range(1, 41))
    cases = {
        steps + "Training completed.\nbye\n": (41, "says that the job finished"),
        steps + "saving the last weights\nDone in 80 s\n": (42, "reads like a successful end"),
        steps: (40, "counts to the end of the run"),
    }
    for text, (number, why) in cases.items():
        path.write_text(text)
        found = json.loads(cli("diagnose", str(path), "--json").out)
        assert (found["error_type"], found["finished"]) == ("none", True)
        assert [(one["line"], one["note"]) for one in found["evidence"]] == [(number, why)]
        assert f"({why})" in cli("diagnose", str(path)).out
    path.write_text("".join(steps.splitlines(keepends=True)[:30]) + "building an archive\n")
    found = json.loads(cli("diagnose", str(path), "--json").out)
    assert [(one["line"], one["note"]) for one in found["evidence"]] == [
        (30, "the last progress"),
        (31, "the log ends here"),
    ]


def test_a_later_attempt_that_ended_well_is_named_with_its_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    begin = "[2026-01-01 00:00:00,000] torch.distributed.run: starting\n"
    failed = "iteration 1/ 9 | lm loss: 2.1\nRuntimeError: CUDA error: unknown error\n"
    requeued = "Job 1 has been requeued\n"
    path.write_text(
        f"{begin}{failed}{requeued}{begin}iteration 2/ 9 | lm loss: 2.0\ntraining is done\n"
    )
    out = cli("diagnose", str(path)).out.splitlines()
    assert out[0] == "No failure"
    assert out[1] == f"The last of 2 attempts ended well; it begins in line 5 of {path}."


def test_a_directory_of_unlike_logs_is_said_to_be_one(cli: Cli, tmp_path: Path) -> None:
    unlike, ranks, hosts = tmp_path / "unlike", tmp_path / "ranks", tmp_path / "hosts"
    for folder in (unlike, ranks, hosts):
        folder.mkdir()
    (unlike / "vision.log").write_text("epoch 1 loss 2.1\nKeyError: 'x'\n")
    (unlike / "speech.log").write_text("iteration 1/ 9 | lm loss: 2.1\ntraining is done\n")
    for rank in range(3):
        (ranks / f"rank{rank}.log").write_text(f"iteration {rank}/ 9 | lm loss: 2.1\n")
        (hosts / f"job{rank}.log").write_text(f"SLURM_JOB_ID={7000 + rank}\nstep 1 loss 2.1\n")
    (ranks / "launcher.log").write_text("starting 3 processes\nall of them ended\n")
    for folder in (unlike, hosts):
        for command in ("diagnose", "track"):
            assert f"schedmate triage {folder}" in " ".join(cli(command, str(folder)).err.split())
    for command in ("diagnose", "track"):
        assert "schedmate triage" not in cli(command, str(ranks)).err
    assert f"this is about {ranks}/rank" in " ".join(cli("track", str(ranks)).err.split())


def _log(steps: int, end: str = "") -> str:
    start = "loading the data\nbuilding the model\nusing 8 GPUs\n"
    return start + "".join(f"step {n}/1000 | loss 2.1 | 0.2 s/it\n" for n in range(steps)) + end


def test_logs_of_one_program_by_separate_jobs_are_said_to_be_separate(
    cli: Cli, tmp_path: Path
) -> None:
    by_id, by_steps, ranks, nodes = (
        tmp_path / name for name in ("by_id", "by_steps", "ranks", "nodes")
    )
    for folder in (by_id, by_steps, ranks, nodes):
        folder.mkdir()
    failed = "torch.cuda.OutOfMemoryError: CUDA out of memory.\n"
    for n in range(60):
        (by_id / f"slurm-{81000 + 7 * n}.out").write_text(_log(40, failed))
        (by_steps / f"{n}.log").write_text(_log(20 + 5 * n, failed))
    for n in range(8):
        (ranks / f"log_{n}.txt").write_text(_log(199, failed) if n == 3 else _log(200))
        (nodes / f"nid{1042 + n}.log").write_text(_log(199, failed) if n == 3 else _log(200))
    for folder, why in ((by_id, "names are those of jobs"), (by_steps, "ends at step 19, ")):
        said = " ".join(cli("diagnose", str(folder)).err.split())
        assert said.startswith(f"warning: the 60 logs of {folder} look like those of separate jobs")
        assert why in said
        assert f"`schedmate triage {folder}` diagnoses each job by itself." in said
        warned = json.loads(cli("diagnose", str(folder), "--json").out)["warnings"]
        assert [why in warning for warning in warned] == [True]
    for folder in (ranks, nodes):
        result = cli("diagnose", str(folder))
        assert "separate jobs" not in result.err
        assert result.out.startswith("Out of Memory")


def test_several_files_and_what_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.rank0.log").write_text("iteration 1/ 9 | lm loss: 2.1\n")
    (tmp_path / "a.rank1.log").write_text(LOG)
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    assert cli("diagnose", *files).out.startswith("ECC Error")
    missing = cli("diagnose", str(tmp_path / "no.log"))
    assert missing.code == 3
    assert missing.err.startswith("error: ")
    assert cli("diagnose", "-", files[0]).code == 2


def test_the_rules_can_be_read_and_tried(cli: Cli) -> None:
    assert "xid-79: Node Failure" in cli("rules", "list", "fallen").out
    document = json.loads(cli("rules", "list", "--json").out)
    assert document["schema"] == "schedmate.rules/v1"
    assert len(document["rules"]) >= 200
    assert cli("rules", "test").code == 0
    assert cli("rules", "test", "KeyError: 'x'").out.startswith("py-key: ")
    assert cli("rules", "test", "all is well").code == 1


def test_the_document_fits_its_schema(cli: Cli, tmp_path: Path) -> None:
    schema = json.loads((ROOT / "docs/schemas/diagnose-v1.schema.json").read_text())
    assert schema["properties"].keys() == {"schema", *Diagnosis.model_fields}
    for text in (LOG, "all is well\n", "srun: error: n1: task 0: Exited with exit code 1\n"):
        path = tmp_path / "job.out"
        path.write_text(text)
        jsonschema.validate(json.loads(cli("diagnose", str(path), "--json").out), schema)


def test_a_page_of_documentation_is_said_to_be_no_log(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "# Training\n\nIf you see `CUDA out of memory`, use a smaller batch size.\n" * 3
    )
    assert cli("diagnose", str(page)).err.startswith(f"warning: {page} is hardly a job's log: ")
