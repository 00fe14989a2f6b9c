"""Inputs in object storage, from a server of S3 on this machine."""

from __future__ import annotations

import gzip
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli
from object_storage import Put
from processes import LONG_S
from pyarrow.parquet import read_table

from schedmate.base import objects
from schedmate.base.errors import InputError, LimitError, UsageError

FAILED = "".join(f"step {n} loss {9 / (n + 1):.3f}\n" for n in range(30)) + (
    'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n'
    "    row['labels']\nKeyError: 'labels'\n"
)


def folder_of(url: str) -> str:
    return url.rpartition("/")[0]


def test_logs_below_a_prefix_are_jobs(cli: Cli, put: Put, tmp_path: Path) -> None:
    root = folder_of(put("logs/job-1.out", FAILED))
    put("logs/job-2.log.gz", gzip.compress(FAILED.encode()))
    put("logs/sub/job-3.out", FAILED.replace("KeyError: 'labels'", "ValueError: bad"))
    put("logs/sub/deep/er/job-4.out", FAILED)
    put("logs/empty.out", b"")
    put("logs/noise.out", bytes(range(256)) * 20)
    put("logs/train.py", "print(1)\n")
    put("logs/.hidden", FAILED)
    table = tmp_path / "jobs.parquet"
    done = cli("triage", root, "--json", "--parquet", str(table), "--jobs", "1")
    assert done.code == 0, done.err
    rows = {row["job_id"]: row for row in read_table(table).to_pylist()}
    assert (rows["job-1"]["error_name"], rows["job-1"]["line"]) == ("Key Error", 31)
    assert rows["empty"]["error"].endswith("it is empty.")
    jobs = {job["job_id"]: job for job in json.loads(done.out)["jobs"]}
    assert set(jobs) == {"job-1", "job-2", "job-3", "empty", "noise"}
    assert {name for name, job in jobs.items() if job["error"]} == {"empty", "noise"}
    assert jobs["job-1"]["log"] == f"{root}/job-1.out"
    found = jobs["job-2"]["diagnosis"]
    assert (found["error_name"], found["file"]) == ("Key Error", f"{root}/job-2.log.gz")
    assert "--recursive" in done.err
    assert "1 object" in done.err
    deep = cli("triage", root, "--json", "--recursive", "--jobs", "1")
    assert "job-4" in {job["job_id"] for job in json.loads(deep.out)["jobs"]}
    one = cli("triage", f"{root}/job-*.out", "--json", "--jobs", "1")
    assert [job["job_id"] for job in json.loads(one.out)["jobs"]] == ["job-1"]


def test_a_folder_of_ranks_is_one_job_where_that_is_asked(cli: Cli, put: Put) -> None:
    root = folder_of(folder_of(put("runs/a/rank0.log", "step 1 loss 2\n" * 20)))
    put("runs/a/rank1.log", FAILED)
    put("runs/b/rank0.log", "step 1 loss 2\n" * 20)
    done = cli("triage", root, "--json", "--one-job-per-folder", "--jobs", "1")
    assert done.code == 0, done.err
    jobs = {job["job_id"]: job for job in json.loads(done.out)["jobs"]}
    assert set(jobs) == {"a", "b"}
    assert jobs["a"]["diagnosis"]["file"] == f"{root}/a/rank1.log"
    assert jobs["a"]["log"] == f"{root}/a"
    assert len(jobs["a"]["files"]) == 2


def test_a_list_may_be_in_storage_and_name_what_is(cli: Cli, put: Put, tmp_path: Path) -> None:
    url = put("logs/one.out", FAILED)
    listed = put("logs/jobs.csv", "log,job_id,gpus\none.out,7,4\ngone.out,8,1\n")
    done = cli("triage", listed, "--json", "--jobs", "1")
    assert done.code == 0, done.err
    first, second = json.loads(done.out)["jobs"]
    assert (first["job_id"], first["log"], first["gpus"]) == ("7", url, 4)
    assert first["diagnosis"]["error_name"] == "Key Error"
    assert "there is no s3://" in second["error"]
    here = tmp_path / "jobs.csv"
    here.write_text(f"log,job_id\n{url},9\n")
    again = cli("triage", str(here), "--json", "--jobs", "1")
    assert json.loads(again.out)["jobs"][0]["diagnosis"]["error_name"] == "Key Error"


def test_no_key_leads_out_of_the_folder_that_it_is_copied_to(put: Put, tmp_path: Path) -> None:
    root = folder_of(put("job/train.py", "x = 1\n"))
    put(f"job/{tmp_path}/outside.py", "x = 2\n")  # job//tmp/...
    put("job/a/../../outside.py", "x = 3\n")
    folder = tmp_path / "copy"
    folder.mkdir()
    objects.copy_tree(root, folder)
    assert (folder / "train.py").read_text() == "x = 1\n"
    assert not list(tmp_path.glob("*.py"))
    assert all(path.is_relative_to(folder) for path in tmp_path.rglob("*.py"))


def test_what_was_read_of_an_unfinished_batch_is_not_read_again(put: Put, tmp_path: Path) -> None:
    from schedmate.logparse.triage import Ledger, find_targets, triage

    root = folder_of(put("logs/a.out", FAILED))
    put("logs/b.out", FAILED + "more\n")
    source = f"{root}/"
    with Ledger(tmp_path / "ledger", source) as ledger:
        assert len(list(triage(find_targets(source).targets, ledger))) == 2
    put("logs/b.out", "step 1\n" * 9)  # written anew: another stamp
    batch = find_targets(source)
    with Ledger(tmp_path / "ledger", source) as ledger:
        known = [ledger.get(target.key or "") is not None for target in batch.targets]
        assert known == [True, False]
        verdicts = [verdict for verdict, _ in triage(batch.targets, ledger)]
    assert [one.cached for one in sorted(verdicts, key=lambda one: one.index)] == [True, False]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://no-such-bucket-here/x", "check its name"),
        ("s3://", "names no bucket"),
        ("s3://a::file:///etc/passwd", "chains file systems"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    cli: Cli, storage: None, url: str, sentence: str
) -> None:
    done = cli("triage", url)
    assert done.code in (2, 3)
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_other_schemes_are_paths() -> None:
    for name in ("http://a/b", "file:///etc/passwd", "memory://x", "github://a:b@c", "/s3:/x"):
        assert not objects.is_object(name)
    assert objects.is_object("gs://a/b")
    assert objects.url_of(Path("s3://a/b")) == "s3://a/b"


@pytest.mark.parametrize(("scheme", "package"), sorted(set(objects.CLIENTS.items())))
def test_without_its_client_a_scheme_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"{scheme}:// needs {package}: .*\[objects\]"):
        objects.objects_below(f"{scheme}://bucket/key")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch, storage: None) -> Iterator[None]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        objects._system_of.cache_clear()
        yield
        server.shutdown(socket.SHUT_RDWR)
    thread.join(LONG_S)
    for one in held:
        one.close()


def test_a_server_that_never_answers_is_left(silent: None) -> None:
    with (
        pytest.raises(LimitError, match="was not read within 0.5 s"),
        objects.open_object("s3://bucket/key", wall_s=0.5),
    ):
        pass


def test_an_input_that_is_too_large_is_refused(put: Put, tmp_path: Path) -> None:
    url = put("large.csv", b"x" * (3 << 20))
    with pytest.raises(InputError, match="more than 1 MiB"):
        objects.copy_object(url, tmp_path / "copy", 1 << 20)


def test_a_repository_is_copied_without_what_is_large(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = folder_of(put("code/train.py", "print(1)\n"))
    put("code/configs/a.yaml", "lr: 1\n")
    put("code/weights.bin", b"x" * 5000)
    put("code/../escape.py", "x = 1\n")
    monkeypatch.setattr(objects, "LARGEST_FILE", 4000)
    notes = objects.copy_tree(url, tmp_path / "copy")
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"copy/train.py", "copy/configs/a.yaml"}
    assert len(notes) == 1
    monkeypatch.setattr(objects, "MOST_FILES", 1)
    with pytest.raises(InputError, match="no repository should"):
        objects.copy_tree(url, tmp_path / "other")


def test_code_lists_traces_and_accounting_may_be_in_storage(
    cli: Cli, put: Put, tmp_path: Path
) -> None:
    repo = folder_of(
        put("code/train.py", "import torch\nepochs = 7\nfor _ in range(epochs): pass\n")
    )
    put("code/requirements.txt", "torch\n")
    lines = [
        json.dumps({"repo": one, "command": "python train.py"}) for one in (repo, f"{repo}-gone")
    ]
    done = cli("analyze", "--batch", put("jobs.jsonl", "\n".join(lines)), "--processes", "1")
    assert done.code == 3
    found = {one["index"]: one for one in map(json.loads, done.out.splitlines())}
    assert found[0]["job"]["repo"] == repo
    assert "schedmate-" not in json.dumps(found[0])  # where the copy was
    assert "there is no" in found[1]["error"]
    rows = "job_id,state,duration_s\n1,COMPLETED,5\n2,COMPLETED,6\n"
    done = cli("history", "import", put("sacct.csv", rows), "--json")
    assert json.loads(done.out)["imported"] == 2, done.err
    trace = "id,t0,len,n\n" + "".join(f"{n},{n * 60},600,1\n" for n in range(9))
    words = ("--policy", "fifo", "--cluster", "1x4", "--json", "--map")
    words += ("id=id,submit=t0,duration=len,gpus=n",)
    done = cli("simulate", put("trace.csv", trace), *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["runs"][0]["policy"] == "fifo"
