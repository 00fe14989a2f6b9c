"""Pages as users get them, from made-up logs and traces."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from schedmate.base.terminal import Screen
from schedmate.commands.triage import _strip_of
from schedmate.demo import write_logs
from schedmate.logparse.experiments import read_curve
from schedmate.logparse.failure import diagnose
from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading import open_log
from schedmate.logparse.triage import Ledger, Triage, causes, find_targets, summarise, triage
from schedmate.report.answer import answer_page, curves
from schedmate.report.explanation import explanation_page
from schedmate.report.jobs import show_diagnosis, show_progress
from schedmate.report.simulation import Comparison, simulation_page
from schedmate.report.triage import triage_page
from schedmate.schedulers.model import Cluster, Job, Profile
from schedmate.schedulers.sim.comparison import compare, over_seeds
from schedmate.schedulers.sim.explain import explain_run_times
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.workload import Workload

STEP = "iteration {0}/ 1000 | lm loss: 2.{0:04d} | elapsed time per iteration (ms): 500.0\n"
OOM = (
    "Traceback (most recent call last):\n"
    '  File "/home/ann/{script}.py", line {line}, in <module>\n    main()\n'
    '  File "/home/ann/models/{module}.py", line {inner}, in forward\n    return self.mix(x)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which {left} GiB is free. {more}\n"
)
ENDS = (
    "srun: error: Node failure on gpu{n:02d}\n",
    'Traceback (most recent call last):\n  File "train.py", line {n}, in main\nKeyError: 0\n',
    "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    "ModuleNotFoundError: No module named 'flash_attn'\n",
    "Training completed\n",
    "Training completed\n",
)
LONG = "a" * 180
NAMES = (LONG, "تدريب-نموذج", "訓練實驗" * 12, "e\u0301" * 40, "job with spaces " * 6)
"""Names as people give them: without a place to break, from right to left, wide, combined."""


def _write(folder: Path, names: Sequence[str], count: int, seed: int) -> Path:
    """Logs and their list with run times, GPUs, nodes and workloads."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    rows = ["job_id,log,duration,gpus,nodes,workload"]
    for n in range(count):
        day = 1 + n % 28
        time = f"[2026-11-{day:02d} 10:00:{n % 60:02d},000] "
        if n % 4 == 0:
            end = OOM.format(
                script=f"train_{n}",
                line=n + 1,
                module=f"block{n}",
                inner=n + 5,
                asked=n + 1.5,
                left=n / 10,
                more="Including memory outside PyTorch. " * (n % 5),
            )
        else:
            end = ENDS[n % len(ENDS)].format(n=n)
        steps = "".join(time + STEP.format(one) for one in range(1, 30))
        (folder / f"{n}.log").write_text(f"{steps}new words {seed} {'x' * n}\n{time}{end}")
        name = names[n % len(names)] if names else f"exp/run-{n}"
        gpus = rng.choice((1, 8, 64))
        rows.append(f"{name},{n}.log,{rng.randrange(60, 90_000)},{gpus},gpu{n % 7:02d},{name[:60]}")
    (folder / "jobs.csv").write_text("\n".join(rows) + "\n")
    return folder / "jobs.csv"


def triaged(source: Path, ledger: Path) -> Triage:
    """As `schedmate triage` does it."""
    with Ledger(ledger, str(source)) as store:
        batch = find_targets(str(source))
        results = list(triage(batch.targets, store))
        shown: dict[int, int] = {}
        for _, templates in results:
            for one in templates:
                shown[one] = shown.get(one, 0) + 1
        found = summarise(str(source), [one for one, _ in results], shown, store, batch.warnings)
        store.finish(causes(found))
    return found


def triage_report(folder: Path, names: Sequence[str] = (), count: int = 60) -> str:
    """The second of two batches, so that there is something new."""
    ledger = folder / "ledger.sqlite"
    triaged(_write(folder / "first", (), 8, 1), ledger)
    source = _write(folder / "second", names, count, 2)
    found = triaged(source, ledger)
    found.warnings.append("8 logs of run-7 were read as the ranks of one job")
    return _page(found, source)


def sixty_jobs(folder: Path) -> str:
    """The batch of `schedmate demo`."""
    write_logs(folder)
    return _page(triaged(folder / "jobs.csv", folder / "ledger.sqlite"), folder / "jobs.csv")


def empty_report(folder: Path) -> str:
    """A batch in which nothing failed."""
    logs = folder / "fine"
    logs.mkdir()
    (logs / "fine.log").write_text(STEP.format(1) + "Training completed\n")
    return _page(triaged(logs, folder / "ledger.sqlite"), logs)


def _page(found: Triage, source: Path) -> str:
    return triage_page(found, partial(_strip_of, find_targets(str(source))))


def trace(jobs: int, names: Sequence[str] = ()) -> Workload:
    rng = random.Random(0)
    rows = [
        (rng.uniform(0, 400 * jobs), rng.lognormvariate(7, 2), rng.choice([1, 1, 1, 2, 8, 16]))
        for _ in range(jobs)
    ]
    made = Workload.of(rows, profiles=[Profile(rng.uniform(5, 90), 10, 2000) for _ in rows])
    made.vcs = [names[n % len(names)] if names else f"vc{n % 3}" for n in range(jobs)]
    for job, name in zip(made.jobs, names, strict=False):
        job.id, job.user = name, name
    return made


def simulation_report(*, sweep: bool = False, names: Sequence[str] = ()) -> str:
    """Of four policies; a sweep has two clusters, estimators and seeds."""
    policies = ("fifo", "sjf", "tiresias", "lucid")
    plans = [
        Plan(policies, Cluster.parse(nodes), told, HONEST, seed, True, nodes)
        for nodes in (("4x8", "6x8") if sweep else ("4x8",))
        for told in (("user-mean", "noisy:1") if sweep else ("user-mean",))
        for seed in ((0, 1) if sweep else (0,))
    ]
    made = trace(300, names)
    results = list(compare(made, plans))
    numbers = [one.numbers for one in results]
    document = {"schema": "x", "trace": "t", "runs": numbers, "over_seeds": over_seeds(numbers)}
    name = names[0] if names else "trace.csv"
    return simulation_page(Comparison(plans, results, document, name, made.made_up, made.notes))


def jobs_of_three(draw: random.Random) -> list[Job]:
    """Two hundred jobs of three users, one every two hours."""
    return [
        Job(str(n), n, n * 7200.0, draw.choice([1, 2, 4]), user=draw.choice("abc"))
        for n in range(200)
    ]


def explanation_report() -> str:
    """Of run times between seconds and days."""
    draw = random.Random(2)
    jobs = jobs_of_three(draw)
    durations = [math.exp(draw.uniform(2, 12)) for _ in jobs]
    made = Workload("x", jobs, durations, [None] * len(jobs))
    return explanation_page(explain_run_times(made, "150"), "trace.csv", synthetic=False)


def answer() -> str:
    """What `track` and `diagnose` say of a job that failed, with curves, on one page."""
    steps = "".join(f"iteration {n}/ 900 | lm loss: {9 / n:.4f} | elapsed time per iteration (ms): "
                    f"{400 + n % 7}.0\n" for n in range(1, 400))  # fmt: skip
    end = OOM.format(
        script=LONG, line=1, module="m", inner=2, asked=3, left=1, more=" ".join(NAMES)
    )

    def show(screen: Screen) -> None:
        with open_log(path) as log:
            show_progress(track_log(log)[0], screen)
            screen.line()
            show_diagnosis(diagnose(log), screen)

    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.out"
        path.write_text(steps + end)
        return answer_page("track", f"/scratch/{LONG}/job.out", show, curves(read_curve(path)))


MAKERS: dict[str, Callable[[Path], str]] = {
    "triage": triage_report,
    "triage names": lambda folder: triage_report(folder, NAMES, 24),
    "triage empty": empty_report,
    "triage sixty": sixty_jobs,
    "simulation": lambda _: simulation_report(),
    "simulation sweep": lambda _: simulation_report(sweep=True),
    "simulation names": lambda _: simulation_report(names=NAMES),
    "explanation": lambda _: explanation_report(),
    "answer": lambda _: answer(),
}


class Pages(dict[str, Path]):
    """Every kind of report by its name, written when it is first asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory

    def __missing__(self, name: str) -> Path:
        folder = self._factory.mktemp(name.replace(" ", "-"))
        page = folder / "report.html"
        page.write_text(MAKERS[name](folder), encoding="utf-8")
        self[name] = page
        return page
