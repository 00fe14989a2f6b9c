"""`schedmate simulate`, `policies` and `traces`, as a user runs them; and the page on policies."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import INPUT, INTERNAL, USAGE, InputError, UsageError
from schedmate.schedulers import Policy, registry
from schedmate.schedulers.board import Board
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    rows = [f"j{n},{n * 10},{600 - n * 40},{1 + n % 4},{600 - n * 50}" for n in range(12)]
    path.write_text("\n".join(["job_id,submit_s,duration_s,gpus,guess", *rows]) + "\n")
    return path


def test_compares_policies_in_json(cli: Cli, trace: Path) -> None:
    result = cli(
        *("simulate", str(trace), "--policy", "fifo,sjf,srtf", "--cluster", "1x4"),
        *("--estimator", "column:guess", "--json"),
    )
    assert result.code == 0
    document = json.loads(result.out)
    assert document["schema"] == "schedmate.simulate/v1"
    assert [run["policy"] for run in document["runs"]] == ["fifo", "sjf", "srtf"]
    for run in document["runs"]:
        assert run["jobs"] == 12
        assert run["avg_jct_h"] >= run["avg_queue_h"] >= 0
        assert run["p999_queue_h"] >= run["median_queue_h"]
        assert 0 < run["utilisation"] <= 1
        assert not run["oracle"]
    assert document["runs"][2]["preemptions"] > 0
    fifo, *others = document["runs"]
    for run in others:
        mean, low, high = run["jct_less_first_h"]
        assert mean == pytest.approx(run["avg_jct_h"] - fifo["avg_jct_h"])
        assert low <= mean <= high


def test_says_who_won_and_that_an_oracle_helped(cli: Cli, trace: Path) -> None:
    result = cli(
        *("simulate", str(trace), "--policy", "fifo,sjf", "--cluster", "1x4"),
        *("--estimator", "oracle"),
    )
    assert result.code == 0
    first, second, *_ = result.out.splitlines()
    assert first.startswith("best average JCT: sjf, ")
    assert "which no scheduler can know" in second


def test_policies_that_change_nothing_share_the_first_place(cli: Cli, trace: Path) -> None:
    result = cli("simulate", str(trace), "--policy", "fifo,sjf,srtf", "--cluster", "99x8")
    assert result.out.startswith("best average JCT: fifo, sjf and srtf alike, ")
    result = cli(
        *("simulate", str(trace), "--policy", "fifo,sjf", "--cluster", "99x8"),
        *("--seed", "1,2,3"),
    )
    assert result.out.startswith("best average JCT: fifo (seed 1) and 5 others alike, ")


def test_the_published_mode_says_what_it_changes(cli: Cli, trace: Path) -> None:
    result = cli(
        *("simulate", str(trace), "--policy", "fifo,sjf,tiresias,lucid", "--cluster", "8x4"),
        *("--estimator", "column:guess", "--mode", "published", "--json"),
    )
    runs = {run["policy"]: run for run in json.loads(result.out)["runs"]}
    assert runs["tiresias"]["settings"] == "tiresias:backfill=false:quota=true:interval_s=60"
    assert runs["fifo"]["settings"] == "fifo:backfill=false"
    lucid = "lucid:backfill=true:profile_limit_s=80:profile_gpus=4:lookahead_s=0"
    lucid += ":remaining=false:pair_waiting=false"
    assert runs["lucid"]["settings"] == lucid
    assert (runs["sjf"]["estimator"], runs["sjf"]["oracle"]) == ("oracle", True)
    assert (runs["lucid"]["estimator"], runs["lucid"]["oracle"]) == ("column:guess", False)


def test_a_finished_run_is_kept_and_not_repeated(cli: Cli, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    base = ("simulate", str(trace), "--cluster", "1x4", "--out", str(out), "--json")
    first = json.loads(cli(*base, "--policy", "fifo").out)
    document = json.loads((out / "fifo" / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in document["traceEvents"]) == 3 * (1 + 2 + 3 + 4)
    assert len((out / "fifo" / "jobs.csv").read_text().splitlines()) == 13
    made = (out / "fifo" / "summary.json").stat().st_mtime_ns
    again = json.loads(cli(*base, "--policy", "fifo,sjf").out)
    assert again["runs"][0] == first["runs"][0]
    fresh = json.loads(cli(*base[:4], "--json", "--policy", "fifo,sjf").out)
    assert again["runs"][1]["jct_less_first_h"] == pytest.approx(
        fresh["runs"][1]["jct_less_first_h"], abs=1e-6
    )
    assert (out / "fifo" / "summary.json").stat().st_mtime_ns == made
    cli(*base, "--policy", "fifo", "--estimator", "none")
    assert (out / "fifo" / "summary.json").stat().st_mtime_ns != made


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--policy", "nope"), USAGE, "no policy 'nope'; there are arena, elasticflow, fifo"),
        (("--policy", ","), USAGE, "--policy names none"),
        (("--policy", "tiresias:limit=3"), USAGE, "has no setting 'limit=3'; it has threshold"),
        (("--policy", "sjf-ageing:weight=x"), USAGE, "weight=x is not a number"),
        (("--policy", "sjf-ageing:weight=nan"), USAGE, "weight=nan is not a number"),
        (("--policy", "sjf-ageing:weight=inf"), USAGE, "weight=inf is not finite"),
        (("--policy", "tiresias:threshold_gpu_s=1e400"), USAGE, "=1e400 is not finite"),
        (
            ("--policy", "lucid:profile_limit_s=-5"),
            USAGE,
            "profile_limit_s=-5 must be at least 0",
        ),
        (("--policy", "lucid:burst=1.5"), USAGE, "burst=1.5 is not a whole number"),
        (("--policy", "lucid:backfill=maybe"), USAGE, "backfill=maybe is not true or false"),
        (("--estimator", "noisy:-1"), USAGE, "write it like noisy:1.0"),
        (("--tables", "."), USAGE, "--tables is for workloads of elastic jobs"),
        (("--origin", "real"), USAGE, "write recorded, or what is synthetic"),
        (("--phases", "often"), USAGE, "--phases: 'often' is not a setting"),
        (("--policy", "json:JSONDecoder"), USAGE, "is not a subclass"),
        (("--policy", "no_such_module:X"), USAGE, "PYTHONPATH=. schedmate"),
        (("--policy", "mine.py:X"), USAGE, "PYTHONPATH=. schedmate ... --policy mine:X"),
        (("--policy", "../a/mine.py:X"), USAGE, "PYTHONPATH=../a schedmate ... --policy mine:X"),
        (("--estimator", "magic"), USAGE, "no estimator 'magic'"),
        (("--estimator", "column:x"), USAGE, "no column 'x' of numbers; it has guess"),
        (("--mode", "x"), USAGE, "none of honest, published"),
        (("--cluster", "8"), USAGE, "'8' is not a group of nodes"),
        (("--cluster", "1x2"), INPUT, "job j2 asks for 3 GPUs: more than its nodes"),
        (("--node-mtbf", "0"), USAGE, "or more often run nothing"),
        (("--seed", "-1"), USAGE, "write whole numbers"),
        (("--node-mtbf", "1e-320"), USAGE, "or more often run nothing"),
        (("--failures", "gpu_mtbf=1e-320"), USAGE, "gpu_mtbf at least 600 s"),
        (("--map", "submit"), USAGE, "write FIELD=COLUMN"),
        (("--colocation", "absent.csv"), USAGE, "not a colocation table"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    cli: Cli, trace: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    out = tmp_path / "runs"
    options = {"--policy": "fifo", "--cluster": "1x4", "--out": str(out)}
    options.update([arguments])
    result = cli("simulate", str(trace), *(part for pair in options.items() for part in pair))
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err
    assert not out.exists()


POLICIES = """
from schedmate.schedulers import Policy, Start

class Mine(Policy):
    name = "mine"

class Raises(Mine):
    def decide(self, view):
        return [1 / 0]

class Junk(Mine):
    def decide(self, view):
        return ["start"]

class Elsewhere(Mine):
    def decide(self, view):
        return [Start(job, ((99, 1),)) for job in view.pending]

class Twice(Mine):
    def decide(self, view):
        return [Start(job, ((0, 2 ** job.gpus - 1),)) for job in view.pending]

class Never(Mine):
    def decide(self, view):
        return []

class Needs(Mine):
    def __init__(self, limit):
        self.limit = limit
"""


@pytest.mark.parametrize(
    ("policy", "code", "message"),
    [
        ("Raises", INTERNAL, r"failed in .*bad_policies.py, line 9: ZeroDivisionError: division"),
        (
            "Junk",
            INTERNAL,
            "decision of policy .* cannot be carried out .*: decide.view. returns a list",
        ),
        ("Mine", INTERNAL, r"policy mine has no decide\(view\); write one"),
        ("Elsewhere", INTERNAL, "which is impossible: there are no such GPUs"),
        ("Twice", INTERNAL, "decided Start of job j1 at 10.000 s, which is impossible: not all"),
        ("Never", INTERNAL, "left 12 jobs waiting forever, the first j0"),
        ("Needs", USAGE, "needs limit: give the argument a default"),
    ],
)
def test_a_policy_that_is_wrong_is_told_so(
    cli: Cli,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    code: int,
    message: str,
) -> None:
    (tmp_path / "bad_policies.py").write_text(POLICIES)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "runs"
    base = ("simulate", str(trace), "--cluster", "1x4", "--out", str(out))
    result = cli(*base, "--policy", f"bad_policies:{policy}")
    assert result.code == code
    assert re.search(message, result.err)
    assert "Traceback" not in result.err
    assert not out.exists()


def test_policies_are_listed_with_their_settings(cli: Cli) -> None:
    document = json.loads(cli("policies", "--json").out)
    settings = {row["name"]: row["settings"] for row in document["policies"]}
    assert settings["tiresias"]["threshold_gpu_s"] == 18000.0
    assert "fifo" in cli("policies").out
    assert "threshold_gpu_s" not in cli("policies").out
    shown = cli("policies", "tiresias").out
    assert re.search(r"^threshold_gpu_s +18000.0  +", shown, re.MULTILINE)
    assert shown.splitlines()[-1] == "to change one: --policy tiresias:threshold_gpu_s=VALUE"
    assert cli("policies", "tiresias:quota=true").out == shown
    [only] = json.loads(cli("policies", "fifo", "--json").out)["policies"]
    assert only["name"] == "fifo"
    unknown = cli("policies", "tiresia")
    assert unknown.code == USAGE
    assert "did you mean tiresias" in unknown.err


def test_traces_are_listed_and_checked(cli: Cli, trace: Path) -> None:
    assert "slurm" in cli("traces", "list").out
    result = cli("traces", "check", str(trace))
    assert "jobs = 12" in result.out
    assert "number columns = guess" in result.out


def test_the_policy_of_the_documentation_runs(
    cli: Cli, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    policy, test, live = (part.split("```")[0] for part in page.split("```python\n")[1:])
    (tmp_path / "my_documented_policies.py").write_text(f"{policy}\n\n{test}")
    monkeypatch.syspath_prepend(tmp_path)
    result = cli(
        *("simulate", str(trace), "--cluster", "1x4", "--json"),
        *(
            "--policy",
            "my_documented_policies:FewestGpus,my_documented_policies:FewestGpus:per_gpu_s=0",
        ),
    )
    assert result.code == 0, result.err
    one, two = json.loads(result.out)["runs"]
    assert one["jobs"] == 12
    assert one["avg_jct_h"] < two["avg_jct_h"]
    written = sys.modules["my_documented_policies"]
    assert issubclass(written.FewestGpus, Policy)
    written.test_a_small_job_passes_a_large_one()
    (tmp_path / "my_documented_executor.py").write_text(live)
    done = importlib.import_module("my_documented_executor")
    assert (done.job.service_s, done.board.view.space.idle) == (3698.0, 16)


ENDS = """
import os
from schedmate.schedulers import Policy

class Ends(Policy):
    name = "mine"
    def decide(self, view):
        raise SystemExit(0)

class EndsWhenMade(Policy):
    name = "mine"
    def __init__(self):
        raise SystemExit

class Base(Policy):
    name = "mine"
    def decide(self, view):
        raise BaseException("of its own")

class Generator(Policy):
    name = "mine"
    def decide(self, view):
        raise StopIteration
"""


@pytest.mark.parametrize(
    ("policy", "code", "message"),
    [
        ("ends:Ends", INTERNAL, "failed in .*ends.py, line 8: SystemExit: 0"),
        ("ends:EndsWhenMade", USAGE, "cannot be made of .* .SystemExit"),
        ("ends:Base", INTERNAL, "BaseException: of its own"),
        ("ends:Generator", INTERNAL, "StopIteration"),
        ("ends_on_import:Any", USAGE, "its module fails .SystemExit: 0"),
        ("raises_on_import:Any", USAGE, "its module fails .ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_no_policy_ends_the_program_without_a_result(
    cli: Cli,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    code: int,
    message: str,
    processes: str,
) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    (tmp_path / "ends_on_import.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "raises_on_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    policies = f"fifo,{policy}" if processes == "2" else policy
    result = cli(
        "simulate", str(trace), "--cluster", "1x4", "--policy", policies, "--jobs", processes
    )
    assert result.code == code, result.err
    assert re.search(message, result.err)
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("cell", "column"),
    [
        ("1e308", "duration_s"),
        ("-1e308", "submit_s"),
        ("1e308", "submit_s"),
        ("1e400", "duration_s"),
        ("9" * 5_000, "gpus"),
        ("1e308", "gpus"),
        ("1e300", "priority"),
        ("1e308", "cpus"),
        ("1e308", "memory_mb"),
        ("1e308", "time_limit_s"),
        ("nan", "gpu_util_pct"),
        ("1e308", "gmem_mb"),
        ("9" * 5_000, "iterations"),
        ("1e308", "lr"),
    ],
)
def test_a_cell_that_no_cluster_recorded_is_named(
    cli: Cli, tmp_path: Path, cell: str, column: str
) -> None:
    row = {"job_id": "a", "submit_s": "0", "duration_s": "60", "gpus": "1", "model": "m"}
    row |= {"gpu_util_pct": "50", column: cell}
    path = tmp_path / "t.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    result = cli("simulate", str(path), "--policy", "fifo", "--cluster", "2x4", "--json")
    assert result.code == INPUT
    assert "line 2" in result.err
    assert len(result.err) < 600


@pytest.mark.parametrize("policy", ["gavel", "sia", "pollux"])
def test_a_job_of_endless_rounds_is_refused(cli: Cli, tmp_path: Path, policy: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,2e11,1\nb,1e11,60,1\n")
    result = cli("simulate", str(path), "--policy", policy, "--cluster", "1x4")
    assert result.code == INPUT
    assert "Leave that job out" in result.err
    for others in ("fifo", "srtf", "tiresias", "lucid", "horus"):
        assert cli("simulate", str(path), "--policy", others, "--cluster", "1x4").code == 0


@pytest.mark.parametrize("policy", ["gavel", "sia", "pollux", "arena", "elasticflow"])
def test_a_policy_that_ignores_virtual_clusters_is_asked_for_each_on_its_own(
    cli: Cli, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "t.csv"
    rows = ["a,0,600,4,nlp", "b,1,600,4,nlp", "c,1,60,2,vision"]
    path.write_text("\n".join(["job_id,submit_s,duration_s,gpus,vc", *rows]) + "\n")
    given = ("simulate", str(path), "--policy", f"fifo,{policy}", "--json", "--cluster")
    result = cli(*given, "1x4@nlp,1x4@vision")
    assert result.code == 0, result.err
    _, own = json.loads(result.out)["runs"]
    assert own["makespan_h"] > 1200 / 3600 * 0.99  # b does not run in the other's idle node
    result = cli(*given, "1x4@nlp,1x4@vision,1x4")
    assert result.code == USAGE
    assert f"policy {policy} decides for each virtual cluster on its own" in result.err
    with pytest.raises(UsageError, match="nodes of nlp and others of none"):
        Board(Cluster.parse("1x4@nlp,1x4"), registry.make(policy))


@pytest.mark.parametrize("setting", ["interval_s=0", "interval_s=1e308", "interval_s=nan"])
def test_a_round_has_a_length(cli: Cli, trace: Path, setting: str) -> None:
    result = cli("simulate", str(trace), "--policy", f"gavel:{setting}", "--cluster", "1x4")
    assert result.code == USAGE
    assert "interval_s" in result.err


def test_times_are_checked_in_the_library_as_well() -> None:
    for row in ((0.0, 1e308, 1), (math.nan, 5.0, 1), (0.0, math.inf, 1), (0.0, -1.0, 1)):
        with pytest.raises(InputError, match="times go up to"):
            Simulation(Workload.of([row]), registry.make("fifo"), Cluster.parse("1x4"))


@pytest.mark.parametrize("spec", ["9999999999x8", "999999999x8", "1x99999", "9" * 5_000 + "x1"])
def test_a_cluster_has_a_size(cli: Cli, trace: Path, spec: str) -> None:
    result = cli("simulate", str(trace), "--policy", "fifo", "--cluster", spec)
    assert result.code == USAGE
    assert re.search("larger than|not a group of nodes", result.err)


PAIR = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"


@pytest.mark.parametrize(
    "text",
    [PAIR + "a,b,1,0,nan,a,b,1,0,0.5\n", PAIR + "a,b\n", PAIR + "x" * 200_000, "x\n1\n"],
)
def test_a_colocation_table_holds_speeds(cli: Cli, trace: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    arguments = ("--policy", "lucid", "--cluster", "1x4", "--colocation", str(path))
    result = cli("simulate", str(trace), *arguments)
    assert result.code == USAGE
    assert "is not a colocation table" in result.err


@pytest.mark.parametrize("text", ["x" * 200_000, "job_id," + "y" * 200_000 + "\n1,2\n"])
@pytest.mark.parametrize("command", [("traces", "check"), ("history", "import"), ("triage",)])
def test_a_cell_larger_than_any_is_a_sentence(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    result = cli(*command, str(path))
    assert result.code == INPUT
    assert "internal error" not in result.err


def test_a_cluster_that_is_far_too_large_is_said(tmp_path: Path, cli: Cli) -> None:
    """And columns of what no run did are left out."""
    trace = tmp_path / "trace.csv"
    rows = [f"{n},{60 * n},600,1" for n in range(50)]
    trace.write_text("job_id,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")
    words = ("simulate", str(trace), "--policy", "fifo,sjf", "--cluster")
    large, small = cli(*words, "20x8").out, cli(*words, "1x2").out
    assert "so the policies cannot differ: give a smaller --cluster; one 15 times" in large
    assert "smaller --cluster" not in small
    assert "preempted" not in large
    assert "queue h" in large


def test_start_delays_are_measured_in_a_record_and_drawn(
    cli: Cli, trace: Path, tmp_path: Path
) -> None:
    from schedmate.cluster.ray.store import Place, Request, Store
    from schedmate.jobs import JobSpec
    from schedmate.schedulers.sim.starts import Begun, StartDelays, samples_of_queue

    with Store(tmp_path / "queue" / "queue.db") as store:
        store.submit("mark", Request(spec=JobSpec(command="true", repo="jobs"), gpus=1), 0.0)
        job = store.job(1)
        assert job is not None
        for n in range(20):
            run = store.begin(job, "run", [Place("a", "a", 1)], "jobs", 100.0 * n)
            store.started(run.id, 100.0 * n + 3.0)
    # every job comes to a free queue but the last, which waits
    rows = [f"{n},{n * 100},{n * 100 + 5},{n * 100 + 60},1,COMPLETED" for n in range(20)]
    rows += ["20,2000,2005,2900,1,COMPLETED", "21,2010,2900,2950,1,COMPLETED"]
    jobs = tmp_path / "accounting.csv"
    jobs.write_text("\n".join(["job_id,submit_time,start_time,end_time,gpus,state", *rows]) + "\n")
    jct = []
    for record, delay in ((tmp_path / "queue", 3.0), (jobs, 5.0)):
        place = tmp_path / "delays.json"
        done = cli("traces", "delays", str(record), "-o", str(place))
        assert done.code == 0, done.err
        assert f"{delay:.2f} s on average" in done.err
        document = json.loads(place.read_text())
        assert {one["mean_s"] for one in document["groups"]} == {delay}
        assert document["schema"] == "schedmate.start-delays/v1"
        command = ("simulate", str(trace), "--policy", "sjf", "--cluster", "12x4", "--json")
        plain, drawn = (
            json.loads(cli(*command, *more).out)["runs"][0]["avg_jct_h"]
            for more in ((), ("--start-delays", str(place)))
        )
        assert (drawn - plain) * 3600 == pytest.approx(delay)
        jct.append(drawn)
    place.write_text(json.dumps(document | {"groups": [{**document["groups"][0], "starts": 0}]}))
    refused = cli(*command, "--start-delays", str(place))
    assert (refused.code, "groups.0.starts" in refused.err) == (INPUT, True)
    # the second start finds the runner of the first; the third and fourth are of another size
    begun = [(0, 5, 10, 1), (20, 21, 30, 1), (40, 46, 50, 2), (60, 67, 70, 1)]
    found = samples_of_queue(
        Begun(decided, started, ended, (("a", gpus),)) for decided, started, ended, gpus in begun
    )
    assert [(one.delay_s, one.kept) for one in found] == [
        *((5, False), (1, True), (6, False), (7, False)),
    ]
    fitted = StartDelays.fit(found * 5, "queue")
    assert fitted.takes_s("a", 1, 8, kept=True) == 1
    assert [one.mean_s for one in fitted.groups] == pytest.approx([1, 6, 19 / 4])
    few = cli("traces", "delays", str(trace))
    assert few.code == INPUT
    assert "20 are needed" in few.err
