"""Which files of a directory are one job: the ranks of a run, and none that only look like it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath

import pytest
from cli_runner import Cli
from job_logs import log

from schedmate.logparse.triage import Batch, find_targets
from schedmate.logparse.triage.runs import name_of

ENDED = "Traceback (most recent call last):\n  File 'train.py', line 9, in main\nKeyError: 'x'\n"


def ranked(start: int = 0, *, job: str | None = None, rank: int | None = None) -> str:
    """A log of one rank that begins `start` minutes after noon."""
    first = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=start)
    lines = [] if job is None else [f"SLURM_JOB_ID={job}"]
    lines += [] if rank is None else [f"rank {rank} of world_size 8"]
    for n in range(30):
        at = first + timedelta(seconds=30 * n)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S} step {n} loss 2.5")
    return "\n".join([*lines, ENDED])


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def jobs(batch: Batch, root: Path) -> list[list[str]]:
    return [[str(path.relative_to(root)) for path in one.files] for one in batch.targets]


@pytest.mark.parametrize(
    "names",
    [
        ["rank0.log", "rank1.log", "rank2.log"],
        ["train_rank-0.out", "train_rank-1.out", "train_rank-2.out"],
        ["worker_0/log.txt", "worker_1/log.txt", "worker_2/log.txt"],
        ["node1/local_rank0.log", "node1/local_rank1.log", "node1/local_rank2.log"],
        ["attempt_0/0/stderr.log", "attempt_0/1/stderr.log", "attempt_0/2/stderr.log"],
        ["rank0.log.gz.log", "rank1.log.gz.log", "rank2.log.gz.log"],
    ],
)
@pytest.mark.parametrize("home", ["", "run7/"])
def test_ranks_of_one_run_are_one_job(tmp_path: Path, names: list[str], home: str) -> None:
    write(tmp_path, {home + name: ranked(n) for n, name in enumerate(names)})
    write(tmp_path, {"a.log": log("key")})
    batch = find_targets(str(tmp_path), recursive=True)

    assert jobs(batch, tmp_path) == [["a.log"], [home + name for name in names]]
    target = batch.targets[1]
    assert target.merged == "names that differ by rank, overlapping times and the same lines"
    if home:
        assert (target.log, target.job_id) == (tmp_path / "run7", "run7")
    with target.open() as opened:
        assert len(opened.files) == 3
        assert opened.files[1].rank == 1


def test_what_numbers_mean_is_said_by_the_contents(tmp_path: Path) -> None:
    same = {f"log_{n}.txt": ranked(job="4711", rank=n) for n in range(4)}
    write(tmp_path, same)
    [target] = find_targets(str(tmp_path)).targets

    assert len(target.files) == 4
    assert target.merged is not None
    assert target.merged.startswith("names that differ by number, the same job id")


@pytest.mark.parametrize(
    "files",
    [
        # an array of jobs, or several jobs at once: the same program at the same time
        {f"slurm-12_{n}.out": ranked() for n in range(4)},
        {f"gpu{n}.log": ranked() for n in range(4)},
        {f"node{n}.log": ranked() for n in range(4)},
        {f"task_{n}.log": ranked() for n in range(4)},
        {f"run{n}/rank0.log": ranked() for n in range(4)},
        # names of ranks, and other jobs, times, worlds or programs
        {f"rank{n}.log": ranked(job=f"47{n}1") for n in range(4)},
        {f"rank{n}.log": ranked(n * 600) for n in range(4)},
        {f"rank{n}.log": ranked(rank=3) for n in range(4)},
        {f"rank{n}.log": f"world_size={2 + n}\n" + ENDED for n in range(4)},
        {f"rank{n}.log": f"{word * 3}\n" for n, word in enumerate(["ab ", "cd ", "ef ", "gh "])},
        # names that have nothing in common
        {"bloom.txt": ranked(), "opt.txt": ranked(), "nccl.txt": ranked(), "oom.txt": ranked()},
        {"case-rank-timeout.txt": ranked(), "case-rank-oom.txt": ranked(), "a1": ranked(),
         "b2": ranked()},
    ],
)  # fmt: skip
@pytest.mark.parametrize("home", ["", "collected/"])
def test_logs_that_only_look_like_ranks_are_jobs_of_their_own(
    tmp_path: Path, files: dict[str, str], home: str
) -> None:
    write(tmp_path, {home + name: text for name, text in files.items()})
    batch = find_targets(str(tmp_path), recursive=True)

    assert len(batch.targets) == 4
    assert all(target.merged is None for target in batch.targets)
    if home:
        assert any("collected (4)" in text for text in batch.warnings)


def test_the_ends_of_short_logs_are_compared(tmp_path: Path) -> None:
    write(tmp_path, {f"rank{n}.log": log("key", steps=60) for n in range(4)})
    [target] = find_targets(str(tmp_path)).targets

    assert target.merged == "names that differ by rank, the same lines"


def test_ranks_that_do_not_agree_are_named(tmp_path: Path) -> None:
    write(tmp_path, {f"rank{n}.log": ranked(n * 600) for n in range(4)})
    [note] = find_targets(str(tmp_path)).warnings

    assert "4 files" in note
    assert "have the names of ranks; what they say makes them 4 jobs." in note


def test_two_runs_in_one_folder_are_two_jobs(tmp_path: Path) -> None:
    files = {f"rank{n}.{run}.log": ranked(600 * run) for run in (1, 2) for n in range(3)}
    write(tmp_path, files)

    assert [len(one.files) for one in find_targets(str(tmp_path)).targets] == [3, 3]


def test_attempts_of_one_run_follow_one_another(tmp_path: Path) -> None:
    names = [f"r/attempt_{a}/{n}/stderr.log" for a in (0, 1) for n in (0, 1)]
    write(tmp_path, {name: ranked(600 * (n // 2)) for n, name in enumerate(names)})
    [target] = find_targets(str(tmp_path)).targets

    assert len(target.files) == 4


def test_both_outputs_of_a_process_are_one_job(tmp_path: Path) -> None:
    write(tmp_path, {"12.out": ranked(), "12.err": ENDED, "13.out": ranked(), "13.err": ENDED})
    batch = find_targets(str(tmp_path))

    assert sorted(map(sorted, jobs(batch, tmp_path))) == [
        ["12.err", "12.out"],
        ["13.err", "13.out"],
    ]
    assert {target.merged for target in batch.targets} == {"the two outputs of one process"}


def test_what_was_recorded_of_a_rank_goes_with_its_log(tmp_path: Path) -> None:
    error = json.dumps({"message": {"message": "KeyError: 'x'", "extraInfo": {"timestamp": "1"}}})
    write(tmp_path, {"r/attempt_0/0/stderr.log": ranked(), "r/attempt_0/0/error.json": error})
    [target] = find_targets(str(tmp_path)).targets

    assert target.log == tmp_path / "r"
    with target.open() as opened:
        assert len(opened.error_files) == 1


def test_what_lies_beside_a_log_is_no_job(tmp_path: Path) -> None:
    write(tmp_path, {"r/train.log": ranked(), "r/config.yaml": "a: 1\n", "r/train.py": "x = 1\n"})
    (tmp_path / "r" / "model.pt").write_bytes(bytes(range(256)) * 20)
    batch = find_targets(str(tmp_path))

    assert jobs(batch, tmp_path) == [["r/train.log"]]
    note = batch.warnings[0]
    assert note.startswith("3 files of")
    assert "r/model.pt (not text)" in note
    assert "r/config.yaml (named as another format beside logs)" in note


def test_what_lies_deeper_is_read_where_it_is_one_job_or_wanted(tmp_path: Path) -> None:
    deep = {"a/logs/train.log": ranked(), "b/x/one.log": ranked(), "b/y/two.log": log("key"),
            "b/top.log": log("oom")}  # fmt: skip
    write(tmp_path, deep)
    batch = find_targets(str(tmp_path))

    assert jobs(batch, tmp_path) == [["a/logs/train.log"], ["b/top.log"]]
    assert "2 logs further below (b) not read; give --recursive." in batch.warnings
    assert len(find_targets(str(tmp_path), recursive=True).targets) == 4


def test_a_file_or_a_folder_is_a_job_where_that_is_said(tmp_path: Path) -> None:
    write(tmp_path, {f"run/rank{n}.log": ranked() for n in range(3)})
    write(tmp_path, {"run/deep/a.log": ranked(), "x.log": ranked(), "y.log": ranked()})

    def sizes(**options: object) -> list[int]:
        found = find_targets(str(tmp_path), **options)  # type: ignore[arg-type]
        return sorted(len(one.files) for one in found.targets)

    assert sizes(job="file", recursive=True) == [1] * 6
    assert sizes(job="folder") == [2, 4]
    assert sizes(job="folder", recursive=True) == [1, 2, 3]
    assert sizes(recursive=True) == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("path", "shape", "numbers", "sure"),
    [
        ("rank12.log", "rank{rank}.log", (12,), True),
        ("crank12.log", "crank{number}.log", (12,), False),
        ("a-worker_3-of-8.log.gz", "a-worker{rank}-of-8.log", (3,), True),
        ("attempt_1/2/stdout.log", "{attempt}/{rank}/{stream}.log", (2,), True),
        ("123/4/stdout.log", "{number}/{number}/{stream}.log", (123, 4), False),
        ("out.log", "out.log", (), False),
        (f"{'9' * 400}.log", f"{'9' * 400}.log", (), False),
        (f"rank{'9' * 400}.log", f"rank{'9' * 400}.log", (), False),
    ],
)
def test_names(path: str, shape: str, numbers: tuple[int, ...], sure: bool) -> None:
    name = name_of(PurePath(path))

    assert (name.shape, name.numbers, name.sure) == (shape, numbers, sure)


# As a user sees it.


def test_what_was_merged_is_said_everywhere(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", {f"rank{n}.log": ranked(job="4711") for n in range(3)})
    why = "names that differ by rank, the same job id and overlapping times and the same lines"
    out = tmp_path / "report.html"
    result = cli("triage", str(logs), "--jobs", "1", "--out", str(out))
    document = json.loads(cli("triage", str(logs), "--jobs", "1", "--json").out)

    assert result.code == 0, result.err
    assert result.out.splitlines()[0].startswith("1 of 1 jobs failed")
    assert result.out.splitlines()[3] == f"One job of 3 files: rank0 ({why})."
    assert f"One job of 3 files: rank0 ({why})." in out.read_text()
    [job] = document["jobs"]
    assert job["files"] == [str(logs / f"rank{n}.log") for n in range(3)]
    assert (job["log"], job["merged"]) == (str(logs / "rank0.log"), why)
    assert job["diagnosis"]["file"] in job["files"]


def test_a_verdict_of_several_files_is_known_again(cli: Cli, tmp_path: Path) -> None:
    files = {f"rank{n}.log": ranked() if n else ranked().replace("KeyError", "OSError")
             for n in range(3)}  # fmt: skip
    first, second = (write(tmp_path / name, files) for name in ("first", "second"))
    [one] = json.loads(cli("triage", str(first), "--jobs", "1", "--json").out)["jobs"]
    [other] = json.loads(cli("triage", str(second), "--jobs", "1", "--json").out)["jobs"]

    assert (one["cached"], other["cached"]) == (False, True)
    assert other["diagnosis"]["file"] == one["diagnosis"]["file"].replace("/first/", "/second/")


def test_links_out_of_the_directory_are_named(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", {"a.log": log("key")})
    secret = write(tmp_path, {"secret/passwd": log("oom")}) / "secret" / "passwd"
    (logs / "job.log").symlink_to(secret)
    (logs / "more").symlink_to(secret.parent)
    for source in (str(logs), f"{logs}/*", f"{logs}/**/*"):
        result = cli("triage", source, "--jobs", "1", "--json")
        assert [job["job_id"] for job in json.loads(result.out)["jobs"]] == ["a"]
        for name in ("job.log", "more"):
            assert f"{logs}/{name} is a link that leads out of {logs}" in result.err
        assert "OutOfMemory" not in result.out

    followed = json.loads(cli("triage", str(logs), "--jobs", "1", "--json", "--follow-links").out)
    assert len(followed["jobs"]) == 2  # both links lead to one file


def test_a_link_behind_a_glob_that_leads_out_is_not_followed(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", {"a/x.log": log("key")})
    write(tmp_path, {"secret/x.log": log("oom")})
    (logs / "b").symlink_to(tmp_path / "secret")
    (logs / "loop").symlink_to(".")
    result = cli("triage", f"{logs}/*/x.log", "--jobs", "1", "--json")

    assert [job["log"] for job in json.loads(result.out)["jobs"]] == [str(logs / "a" / "x.log")]
    assert f"{logs}/b/x.log lies behind a link that leads out of {logs}" in result.err


def test_the_other_directories_follow_no_links_either(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", {"a.log": log("key")})
    secret = write(tmp_path, {"passwd": log("oom")}) / "passwd"
    (logs / "job.log").symlink_to(secret)
    track = cli("track", str(logs), "--json")
    found = cli("diagnose", str(logs), "--json")

    assert "is a link that leads out of" in track.err
    assert "leads out of" in " ".join(json.loads(track.out)["warnings"])
    assert json.loads(found.out)["error_name"] == "Key Error"
    assert "leads out of" in " ".join(json.loads(found.out)["warnings"])
    assert "leads out of" not in cli("track", str(logs), "--follow-links").err
    assert "leads out of" not in cli("diagnose", str(logs), "--follow-links").out


def test_options_that_exclude_each_other(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, {"a.log": log("key"), "jobs.csv": "log\na.log\n"})
    both = cli("triage", str(tmp_path), "--one-job-per-file", "--one-job-per-folder")
    listed = cli("triage", str(tmp_path / "jobs.csv"), "--one-job-per-file")

    assert both.code == listed.code == 2
    assert "--one-job-per-file and --one-job-per-folder exclude each other" in both.err
    assert "is a list, in which each row is a job" in listed.err


def test_a_job_of_a_folder_is_named_after_it(tmp_path: Path) -> None:
    write(tmp_path, {"exp-0.1/one.log": ranked(), "exp-0.1/sub/two.log": log("key"),
                     "exp-0.2/one.log": log("oom"), "top.log": log("key")})  # fmt: skip
    shallow = find_targets(str(tmp_path), job="folder")
    deep = find_targets(str(tmp_path), job="folder", recursive=True)

    assert {one.job_id for one in shallow.targets} == {"exp-0.1", "exp-0.2", tmp_path.name}
    assert {one.job_id for one in deep.targets} == {"exp-0.1", "sub", "exp-0.2", tmp_path.name}


def test_logs_that_cannot_be_read_are_named_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, {"good.log": log("key"), "hollow.log": ""})
    lines = cli("triage", str(tmp_path)).out.splitlines()

    assert [one for one in lines if one.startswith("Not read: hollow")]
    assert "it is empty" in " ".join(lines)
