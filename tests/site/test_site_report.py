"""`schedmate site-report`: what it reads, what it says of jobs, queue and failures, and how."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Cli

from schedmate.retrieval.importers import Source
from schedmate.retrieval.sacct import ImportReport
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload
from schedmate.site.accounting import AccountedJob, Pseudonyms, detect, read_jobs
from schedmate.site.queue import Advised, _Machine, _Rules, rank_correlation, what_if
from schedmate.site.table import Row, job_table

SACCT = (
    "JobID|JobName|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|"
    "NodeList|NCPUS|StdOut|WorkDir\n"
    "17|train|ann|vision|gpu|COMPLETED|1700000000|1700000060|1700003660|3600|120|"
    "cpu=16,gres/gpu=2|gpu[01-02]|16|slurm-%j.out|/logs\n"
    "17.batch|batch||vision||COMPLETED|1700000060|1700000060|1700003660|3600|||gpu01|16||\n"
    "18|eval|bob|nlp|gpu|NODE_FAIL|1700000000|1700000060|1700000120|60|120|gres/gpu=1|gpu03|8||\n"
)
SACCT_JSON: dict[str, Any] = {
    "meta": {"plugins": {}},
    "jobs": [
        {
            "job_id": 17,
            "name": "train",
            "user": "ann",
            "account": "vision",
            "partition": "gpu",
            "nodes": "gpu[01-02]",
            "state": {"current": ["COMPLETED"]},
            "time": {
                "submission": 1700000000,
                "start": 1700000060,
                "end": 1700003660,
                "elapsed": 3600,
                "limit": {"set": True, "infinite": False, "number": 120},
            },
            "tres": {
                "allocated": [
                    {"type": "cpu", "count": 16},
                    {"type": "gres", "name": "gpu", "count": 2},
                ]
            },
        }
    ],
}
KUBERNETES = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "train-28391",
                "namespace": "ann",
                "creationTimestamp": "2023-11-14T22:13:20Z",
                "labels": {"kueue.x-k8s.io/queue-name": "gpu"},
            },
            "spec": {
                "activeDeadlineSeconds": 7200,
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
                        ]
                    }
                },
            },
            "status": {
                "startTime": "2023-11-14T22:14:20Z",
                "conditions": [
                    {
                        "type": "Complete",
                        "status": "True",
                        "lastTransitionTime": "2023-11-14T23:14:20Z",
                    }
                ],
            },
        },
        {"kind": "Pod", "metadata": {"name": "other"}},
    ],
}
RAY = [
    {
        "submission_id": "17",
        "status": "SUCCEEDED",
        "entrypoint": "python train.py",
        "start_time": 1700000060000,
        "end_time": 1700003660000,
        "entrypoint_num_gpus": 2,
        "metadata": {"user": "ann", "name": "train"},
    },
    {"submission_id": "18", "status": "WHAT"},
]
SWF = (
    "; UnixStartTime: 1700000000\n"
    "17 0 60 3600 16 -1 -1 16 7200 -1 1 3 4 5 -1 2 -1 -1\n18 0 60 -1 16 -1 -1 16 7200 -1 5 3 4 5"
    " -1 2 -1 -1\n1 2 3\n"
)
CSV = (
    "id;who;queue;status;submit;start;hours;gpus\n17;ann;gpu;COMPLETED;1700000000;1700000060;1;2\n"
)


def read(text: str, wanted: str | None = None, **columns: str) -> tuple[list[AccountedJob], int]:
    report = ImportReport()
    source = Source(io.StringIO(text, newline=""), text[:4000], None, lambda: 0)
    return list(read_jobs(source, wanted, columns, report)), report.bad


@pytest.mark.parametrize(
    ("text", "kind", "bad"),
    [
        (SACCT, "sacct", 0),
        (json.dumps(SACCT_JSON), "sacct-json", 0),
        (json.dumps(KUBERNETES), "kubectl-json", 0),
        (json.dumps(RAY), "ray-json", 1),
        (SWF, "swf", 1),
        (CSV, "csv", 0),
        ("# made by hand\n# on 1 May\n\n" + CSV, "csv", 0),
    ],
)
def test_every_list_gives_the_same_job(text: str, kind: str, bad: int) -> None:
    assert detect(text) == kind
    columns = {"user": "who", "run": "hours:h"} if kind == "csv" else {}
    jobs, left_out = read(text, None, **columns)
    job = jobs[0]
    assert left_out == bad
    assert (job.state, job.run_s, job.end) == ("COMPLETED", 3600, 1700003660)
    assert job.user == ("3" if kind == "swf" else "ann")
    assert (job.cpus if kind == "swf" else job.gpus) == (16 if kind == "swf" else 2)
    if kind != "ray-json":  # which keeps neither
        assert (job.submit, job.start) == (1700000000, 1700000060)
        assert job.partition == ("2" if kind == "swf" else "gpu")
    if kind.startswith("sacct"):
        assert job.hosts == ("gpu01", "gpu02")
        assert (job.group, job.limit_s, job.cpus) == ("vision", 7200, 16)
    if kind == "kubectl-json":
        assert (job.name, job.limit_s) == ("train", 7200)


def test_sizes_are_read_from_slurm_s_resources_in_csv() -> None:
    header = "JobID,State,Submit,Start,End,AllocTRES,ReqTRES"
    rows = [
        '1,CANCELED,0,60,3660,"cpu=8,node=2,gres/gpu:a100=4",',
        '2,COMPLETED,0,60,3660,"1=8,2=512,4=2,1002=4",',
        '3,FAILED,0,60,3660,,"cpu=4,gres/gpu=2"',
    ]
    report = ImportReport()
    text = "\n".join([header, *rows]) + "\n"
    source = Source(io.StringIO(text, newline=""), text, None, lambda: 0)
    named, numbered, asked = read_jobs(source, "csv", {}, report)
    assert (asked.gpus, asked.cpus) == (2, 4)
    assert (named.gpus, named.cpus, named.nodes, named.state) == (4, 8, 2, "CANCELLED")
    assert (numbered.gpus, numbered.cpus, numbered.nodes) == (0, 8, 2)
    assert report.unnamed == {"1002"}


def test_what_a_list_does_not_say_is_said(cli: Cli, tmp_path: Path) -> None:
    rows = [f'{n},{n * 60},{n * 60},{n * 60 + 900},"4=1,1002=4"' for n in range(300)]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["id,submit,start,end,tres_alloc", *rows]) + "\n")
    done = cli("site-report", str(path), "--format", "csv", "-o", str(tmp_path / "report"))
    assert done.code == 0, done.err
    said = done.out + "".join(one.read_text() for one in tmp_path.glob("report*"))
    assert "resources by number only (1002)" in said
    assert "the running median (the list states no requested times)" in said
    assert "of 0 users" not in said


def made_up(rows: list[str], header: str, folder: Path) -> str:
    path = folder / "jobs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_without_states_and_starts_the_report_says_which_columns_it_lacks(
    cli: Cli, tmp_path: Path
) -> None:
    path = made_up([f"{n},{n * 60},900,2" for n in range(300)], "id,submit,run,gpus", tmp_path)
    report = tmp_path / "report.md"
    done = cli("site-report", path, "--json", "--markdown", str(report))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["failures"]["states_known"] is False
    assert found["failures"]["lost_share"] is None
    text = report.read_text()
    assert "the list has no states" in text
    assert "Jobs by state" not in text
    assert (
        "It states the start of 0 and the end of 0 of 300 jobs that ran" in found["queue"]["reason"]
    )


def test_lists_are_read_for_what_they_are() -> None:
    """Steps are no jobs, a status of -1 is unknown, and a program's arguments may be secret."""
    text = SACCT.replace("|", ";")
    steps = [line.replace("17;", "17.batch;", 1) for line in text.splitlines() if line[:3] == "17;"]
    assert steps
    jobs, _ = read(text + "\n".join(steps) + "\n", "csv")
    assert [job.id for job in jobs] == [job.id for job in read(SACCT)[0]]
    report = ImportReport()
    unknown = SWF.replace(" 7200 -1 1 3", " 7200 -1 -1 3").replace(" 7200 -1 5 3", " 7200 -1 -1 3")
    source = Source(io.StringIO(unknown), unknown, None, lambda: 0)
    ran, never = read_jobs(source, "swf", {}, report)
    assert (ran.state, never.state, report.lacking) == ("COMPLETED", "CANCELLED", {"state"})
    ray = [{**RAY[0], "metadata": {}, "entrypoint": "python train.py --token secret"}]
    assert [job.name for job in read(json.dumps(ray))[0]] == ["python train.py"]


def test_a_list_without_submissions_and_one_of_ray_have_their_report(
    cli: Cli, tmp_path: Path
) -> None:
    cells = [line.split("|") for line in SACCT.splitlines()]
    at = [name.lower() for name in cells[0]].index("submit")
    without = "\n".join("|".join([*one[:at], *one[at + 1 :]]) for one in cells)
    for name, text in (("sacct", without), ("ray", json.dumps(RAY[:1]))):
        path = tmp_path / name
        path.write_text(text + "\n")
        done = cli("site-report", str(path), "--json", "--no-logs")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["predictability"]["total"] is None
        assert ("schedmate ray up" in found["advice"][-1]["setting"]) == (name == "ray")
    assert found["unit"] == "GPU"


def test_of_mixed_jobs_each_takes_what_they_compete_for() -> None:
    """CPUs, though some have GPUs, too."""
    job = Row(1, "1", "COMPLETED", *[None] * 5, 0.0, 0.0, 9.0, 9.0, None, 1.0, 16.0, 1.0, None)
    assert _Machine({"": 64}, 1.0, "cpus").size(job) == 16
    assert _Machine({"": 64}, 1.0, "nodes").size(job) == 1


def test_times_that_are_no_seconds_are_refused_with_the_way_to_say_so(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [f"{n},{(1_700_000_000 + n * 60) * 10**6},900,2" for n in range(300)]
    path = made_up(rows, "id,submit,run,gpus", tmp_path)
    done = cli("site-report", path)
    assert done.code == 3
    assert "--map submit=COLUMN:ms (or us, ns)" in done.err
    assert cli("site-report", path, "--map", "submit=submit:us").code == 0


def test_estimates_that_say_little_are_not_advised(cli: Cli, tmp_path: Path) -> None:
    lengths = random.Random(3)
    rows = [
        f"{n},ann{n % 7},{n * 600},{n * 600 + 60},{10 ** lengths.uniform(0, 6):.0f},2,COMPLETED"
        for n in range(2000)
    ]
    path = made_up(rows, "id,user,submit,start,run,gpus,state", tmp_path)
    done = cli("site-report", path, "--json")
    assert done.code == 0, done.err
    advice = json.loads(done.out)["advice"]
    kinds = [one["kind"] for one in advice]
    assert kinds == sorted(kinds, key=["switch on", "look at", "wait"].index)
    [observe] = [one for one in advice if "observe" in one["title"]]
    assert observe["kind"] == "wait"
    assert "too few to rely on" in observe["why"]


def test_a_default_limit_is_judged_by_the_jobs_that_seem_to_have_it(
    cli: Cli, tmp_path: Path
) -> None:
    """Those that state a time of their own run long, and DefaultTime does not touch them."""
    rows = [
        f"{n},ann,gpu,{n * 600},{n * 600 + 60},{1800 if n % 2 else 40_000},"
        f"{86_400 if n % 2 else 43_000 + n},2,COMPLETED"
        for n in range(2000)
    ]
    header = "id,user,partition,submit,start,run,time_limit_s,gpus,state"
    done = cli("site-report", made_up(rows, header, tmp_path), "--json")
    assert done.code == 0, done.err
    [limit] = [one for one in json.loads(done.out)["advice"] if "DefaultTime" in one["setting"]]
    assert "1,000 of 2,000 completed jobs request 24 h" in limit["why"]
    assert "DefaultTime=0-01:00:00" in limit["setting"]
    own = [row.replace(",86400,", f",{80_000 + n},") for n, row in enumerate(rows)]
    done = cli("site-report", made_up(own, header, tmp_path), "--json")
    assert not [one for one in json.loads(done.out)["advice"] if "DefaultTime" in one["setting"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--map", "nonsense=x"), "with one of the fields"),
        (("--map", "run=nowhere"), "no column 'nowhere'"),
        (("--format", "nonsense"), "not one of auto, sacct-json"),
        (("--format", "swf", "--map", "run=hours:h"), "--map is for csv"),
        ((), "no column of the file is known to hold run"),
        (("-o", "/no/such/place/report.html"), "there is no directory /no/such/place"),
        (("--history", "x"), "exclude each other"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    done = cli("site-report", str(tmp_path / "jobs.csv"), *words)
    assert done.code in (2, 3)
    assert says in " ".join(done.err.split())
    assert len(done.err.splitlines()) <= 4


def test_pseudonyms_are_the_same_for_the_same_name_and_differ_by_kind() -> None:
    names = Pseudonyms()
    job = AccountedJob("1", "FAILED", "ann", "ann", "gpu", "train", hosts=("gpu01",))
    one, two = names.job(job), names.job(job)
    assert one == two
    assert not {"ann", "gpu", "train", "gpu01"} & {*map(str, one), *one.hosts}
    assert one.user != one.group
    assert Pseudonyms().job(job).user != one.user
    assert names.job(AccountedJob("1", "FAILED")).user is None


def test_ranks_have_ties() -> None:
    zeros = np.zeros(5)
    assert rank_correlation(zeros, np.arange(5.0)) == 0
    first, second = np.array([0, 0, 0, 5.0, 9.0]), np.array([0, 0, 0, 50.0, 90.0])
    assert rank_correlation(first, second) == pytest.approx(1.0)


# A made-up site whose queue is the model's own, so that the model must be found faithful.


COLUMNS = (
    "job_id,user,account,partition,name,state,submit,start,end,run_s,time_limit_s,gpus,nodelist,log"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,400 jobs of a site with recurrent work, a broken node, and a failure again and again."""
    draw = random.Random(7)
    rows, moment = [], 0.0
    works = {f"work{n}": math.exp(draw.uniform(5.5, 9.5)) for n in range(12)}
    for _ in range(1_400):
        moment += draw.expovariate(1 / 150)
        name = draw.choice(list(works))
        run = works[name] * math.exp(draw.gauss(0, 0.2))
        rows.append((moment, run, draw.choice([1, 1, 2, 4]), name))
    work = Workload.of([row[:3] for row in rows])
    for job, (_, run, _, _) in zip(work.jobs, rows, strict=True):
        job.time_limit_s = 3600.0 * math.ceil(3 * run / 3600)
    policy = Advised(predict=False)
    outcome = Simulation(work, policy, Cluster.parse("1x16")).run()
    lines = [COLUMNS]
    folder = tmp_path_factory.mktemp("site")
    (folder / "oom.log").write_text(
        "step 1 loss 2\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    for n, ((submit, run, gpus, name), start) in enumerate(
        zip(rows, outcome.first_start, strict=True)
    ):
        user, node = f"secret{int(name[4:]) % 4}", f"gpu{n % 10:02d}"
        state, log = "COMPLETED", ""
        if n % 10 == 3 and n % 40 == 3:
            state = "NODE_FAIL"
        elif name == "work5":
            state, log = "OUT_OF_MEMORY", str(folder / "oom.log")
        lines.append(
            f"{n},{user},group{user[-1]},batch,{name},{state},{1.7e9 + submit:.1f},"
            f"{1.7e9 + start:.1f},{1.7e9 + start + run:.1f},{run:.1f},"
            f"{3600 * math.ceil(3 * run / 3600)},{gpus},{node},{log}"
        )
    path = folder / "jobs.csv.gz"
    with gzip.open(path, "wt") as stream:
        stream.write("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def found(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from schedmate.report.site import site_markdown, site_page
    from schedmate.retrieval.importers import open_source
    from schedmate.site.report import Request, site_report

    report = ImportReport()
    with open_source(site) as source:
        made = site_report(read_jobs(source, None, {}, report), Request("jobs.csv.gz"), report)
    return {"page": site_page(made), "markdown": site_markdown(made), **made.document()}


def test_estimates_beat_requests_of_three_times_the_run(found: dict[str, Any]) -> None:
    total = found["predictability"]["total"]
    assert total["estimate"] > 0.9 > total["requested"]
    assert 0.65 < total["covered"] < 0.95
    assert 0.6 < total["unused"] < 0.8
    assert {"size", "user group", "past jobs of user"} <= set(found["predictability"]["by"])
    curve = found["predictability"]["curve"]
    assert curve["estimate"] == sorted(curve["estimate"])


def test_a_queue_like_the_model_is_found_faithful_and_a_what_if_follows(
    found: dict[str, Any],
) -> None:
    fidelity = found["queue"]["fidelity"]
    assert fidelity["faithful"]
    assert fidelity["correlation"] > 0.9
    assert fidelity["capacity"] == pytest.approx(16, abs=1)
    today, *others = found["queue"]["scenarios"]
    assert today["starved"] == 0
    assert min(one["mean_wait_s"] for one in others) < today["mean_wait_s"]
    change = "estimates order within the bounds"
    losses = [one["change_s"][change] for one in found["queue"]["groups"]]
    assert losses == sorted(losses, reverse=True)


def test_the_order_of_qos_and_limits_of_users_are_found_in_accounting() -> None:
    draw = random.Random(3)
    rules = _Rules({"low": 0, "high": 1}, {0: 4.0})
    moment, rows = 0.0, []
    for _ in range(1_010):
        moment += draw.expovariate(1 / 420)
        qos = "high" if draw.random() < 0.3 else "low"
        user = f"u{draw.randrange(4)}"
        rows.append((moment, draw.uniform(600, 4000), draw.choice([1, 2, 4]), qos, user))
    work = Workload.of([row[:3] for row in rows])
    for job, row in zip(work.jobs, rows, strict=True):
        job.user, job.priority, job.time_limit_s = row[4], rules.ranks[row[3]], 7200.0
    outcome = Simulation(work, Advised(None, rules, predict=False), Cluster.parse("1x16")).run()
    with job_table() as table:
        jobs = [
            AccountedJob(
                str(n), "COMPLETED", row[4], submit=row[0], start=start, end=start + row[1],
                run_s=row[1], limit_s=7200.0, gpus=row[2], qos=row[3],
            )
            for n, (row, start) in enumerate(zip(rows, outcome.first_start, strict=True))
        ]  # fmt: skip
        list(table.fill(jobs))
        fidelity = what_if(table, "gpus").fidelity
    assert fidelity is not None
    assert "with limits of users" in fidelity.model
    assert fidelity.correlation > 0.9


def test_failures_cost_repeats_nodes_and_causes(found: dict[str, Any]) -> None:
    failed = found["failures"]
    assert {one["state"] for one in failed["states"]} == {
        *("COMPLETED", "OUT_OF_MEMORY", "NODE_FAIL"),
    }
    assert 0 < failed["lost_share"] < 1
    assert failed["repeats"][0]["name"] == "work5"
    assert failed["repeats"][0]["state"] == "OUT_OF_MEMORY"
    assert failed["repeats"][0]["runs"] > 3
    suspects = [one["node"] for one in failed["nodes"]["nodes"] if one["suspect"]]
    assert suspects == ["gpu03"]
    assert failed["causes"][0]["error_name"] == "Out of Memory"
    assert failed["logs_read"] > 50


def test_advice_has_a_setting_and_how_to_undo_it(found: dict[str, Any]) -> None:
    titles = [one["title"] for one in found["advice"]]
    assert titles[0].startswith("Let the agent observe")
    assert any("order the queue" in one for one in titles)
    assert "Test 1 suspect nodes" in titles
    assert all(one["setting"].strip() and one["undo"] for one in found["advice"])
    drain = next(one for one in found["advice"] if "suspect" in one["title"])
    assert "NodeName=gpu03 State=DRAIN" in drain["setting"]
    assert not [one for one in found["advice"] if re.search(r"\{[a-z]+\}", one["setting"])]


def test_the_page_is_whole_and_markdown_has_its_sections(found: dict[str, Any]) -> None:
    page = found["page"]
    assert page.count("<section ") == page.count("</section>") == 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert re.findall(r'd="M0 4H28"></path></svg> ([\w ]+)<', page) == [
        "estimates",
        "requested",
        "last run",
    ]
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["schema"] == "schedmate.site-report/v1"
    undo = "diagnose: {allowed: false}"
    assert f"<code>{undo}</code>" in page
    assert f"Undo: `{undo}`" in found["markdown"]
    heads = re.findall(r"^## (.+)$", found["markdown"], re.MULTILINE)
    assert heads[-1] == "What to switch on first"
    assert "      allowed: true" in found["markdown"]


def test_anonymised_nothing_of_the_list_is_left(cli: Cli, site: Path, tmp_path: Path) -> None:
    out, markdown = tmp_path / "r.html", tmp_path / "r.md"
    done = cli(
        *("site-report", str(site), "--anonymize", "--replay", "200", "--json"),
        *("--out", str(out), "--markdown", str(markdown)),
    )
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["coverage"]["anonymized"]
    assert document["coverage"]["first"] is None
    for text in (done.out, out.read_text(), markdown.read_text()):
        assert not re.search(r"secret\d|group\d|work\d|gpu0\d|jobs\.csv|2023-1", text)
    assert re.search(r"user-[0-9a-f]{8}", done.out)


HEADS = "job_id user account partition state submit start run_s limit cpus".split()  # noqa: SIM905


def test_markup_of_a_list_is_text(cli: Cli, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>|$(reboot)"
    path, out, markdown = (tmp_path / name for name in ("jobs.csv", "r.html", "r.md"))
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(HEADS)
        for n in range(300):
            rows.writerow(
                [n, evil, evil, evil, "COMPLETED", 1.7e9 + 60 * n, 1.7e9 + 60 * n, 50, 9000, 1]
            )
    done = cli("site-report", str(path), "--map", "limit=limit", "--out", str(out),
               "--markdown", str(markdown))  # fmt: skip
    assert done.code == 0, done.err
    assert "<script>alert" not in out.read_text()
    lines = markdown.read_text().splitlines()
    assert not [
        one for one in lines if re.search(r"(?<!\\)<script", one) and one[:4].strip()
    ]  # but in code
    assert "PartitionName='<script>" in done.out  # quoted for a shell
    assert "no waits" in " ".join(done.out.split())


def test_a_list_in_which_nothing_ran(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,state,submit,run_s\n1,PENDING,1700000000,\n2,what,1700000000,1\n")
    done = cli("site-report", str(path))
    assert done.code == 3
    assert "no job of the list ran: 2 rows read, 1 row could not be used" in " ".join(
        done.err.split()
    )


def test_the_history_is_read_without_a_file(cli: Cli, tmp_path: Path) -> None:
    history = str(tmp_path / "history")
    lines = [
        json.dumps({
            "job_id": str(n), "user": "ann", "name": "train", "state": "COMPLETED",
            "submit_time": 1.7e9 + 9000 * n, "start_time": 1.7e9 + 9000 * n,
            "end_time": 1.7e9 + 9000 * n + 600, "duration_s": 600, "launch": {"gpus": 1},
        })
        for n in range(120)
    ]  # fmt: skip
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines))
    assert cli("history", "import", str(tmp_path / "jobs.jsonl"), "--history", history).code == 0
    done = cli("site-report", "--history", history, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["unit"] == "GPU"
    assert document["predictability"]["total"]["estimate"] == 1
