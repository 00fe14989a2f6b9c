"""GPU use that changes while jobs run: exact, seeded, seen by the policy, off unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import ChangingUse, Phases

TINY = Profile(10.0, 5.0, 2000.0)
PAIR = [(0.0, 10_000.0, 1), (200.0, 9000.0, 1)]


def speed(summed: float) -> float:
    one = Profile(summed / 2, 0.0, 0.0)
    return HONEST.interference.speeds(one, one, ("", ""))[0]


def simulate(
    rows: list[tuple[float, float, int]],
    phases: Phases,
    settings: str = "",
    cluster: str = "4x1",
    profile: Profile | None = TINY,
) -> tuple[Outcome, dict[int, float]]:
    """What Lucid makes of it, and at which work the use of which job changes."""
    workload = Workload.of(rows, profiles=[profile] * len(rows))
    use = ChangingUse(workload, HONEST, phases, seed=3)
    simulation = Simulation(
        workload,
        make(f"lucid:lookahead_s=0:profile_limit_s=50:{settings}".rstrip(":")),
        Cluster.parse(cluster),
        estimator=Table(workload.duration_s),
        physics=use,
        observers=[use],
    )
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return outcome, {job: at for job, (at, _) in use._changes.items()}


def test_a_pair_is_slower_from_the_very_work_at_which_one_changes() -> None:
    outcome, changes = simulate(PAIR, Phases(1.0, 60.0, 1.0), "evict_unstable=false")
    # The first runs from 50 s on, the second joins it at 250 s, once both are profiled.
    assert [one.start for one in outcome.segments if one.kind == "packed"] == [250.0]
    clock, done = 250.0, {0: 200.0, 1: 0.0}
    left = {job: work - done[job] for job, (_, work, _) in enumerate(PAIR)}
    while min(left.values()) > 1e-6:
        pace = speed(sum(70.0 if done[job] >= changes[job] else 10.0 for job in left))
        ahead = [changes[job] - done[job] for job in left if done[job] < changes[job]]
        step = min(*ahead, *left.values())
        clock += step / pace
        for job in left:
            done[job] = changes[job] if step == changes[job] - done[job] else done[job] + step
            left[job] -= step
    first, last = sorted(left, key=left.__getitem__)
    assert outcome.end[first] == pytest.approx(clock)
    assert outcome.end[last] == pytest.approx(clock + left[last])
    assert sum(changes.values()) < sum(work for _, work, _ in PAIR)


def test_lucid_parts_a_pair_whose_use_turns_unstable() -> None:
    phases = Phases(1.0, 80.0, 0.5)
    kept, _ = simulate(PAIR, phases, "evict_unstable=false")
    parted, _ = simulate(PAIR, phases)
    assert (kept.decisions["Pack"], kept.decisions.get("Evict", 0)) == (1, 0)
    assert (parted.decisions["Pack"], parted.decisions["Evict"]) == (1, 1)
    assert max(parted.end) < max(kept.end)
    # It goes on at once where GPUs are free, and shares no more.
    packed = next(one for one in parted.segments if one.kind == "packed")
    again = [(one.job, one.kind) for one in parted.segments if one.start == packed.end]
    assert again == [(packed.job, "run")]


def test_nothing_changes_that_is_alone_or_unknown() -> None:
    rows = [(0.0, 1000.0, 1)]
    assert simulate(rows, Phases(1.0, 80.0, 0.5), "profile_gpus=0")[0].end == [1000.0]
    outcome, changes = simulate(PAIR, Phases(1.0), "profile_gpus=0", profile=None)
    assert not changes
    assert outcome.end == [10_000.0, 9200.0]


@settings(max_examples=20)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 500).map(float), st.floats(1.0, 900.0), st.sampled_from([1, 2])),
        min_size=1,
        max_size=20,
    ),
    share=st.floats(0.0, 1.0),
    evict=st.booleans(),
)
def test_changes_break_no_law(
    rows: list[tuple[float, float, int]], share: float, *, evict: bool
) -> None:
    policy = f"patience=1e9:evict_unstable={str(evict).lower()}"
    one, _ = simulate(rows, Phases(share, 60.0, 1.0), policy, "5x2")
    two, _ = simulate(rows, Phases(share, 60.0, 1.0), policy, "5x2")
    assert one == two
    if not share:
        assert "Evict" not in one.decisions


def test_settings_from_text() -> None:
    assert Phases.parse("") == Phases()
    assert Phases.parse("share=1,rise=20,latest=0.1") == Phases(1.0, 20.0, 0.1)
    for wrong in ("share", "share=2", "rise=101", "often=1", "latest=nan"):
        with pytest.raises(UsageError, match="is not a setting; there are share=0.2, rise=50"):
            Phases.parse(wrong)


def test_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    rows = [f"{n},{n * 50},{3000 + n},{1}" for n in range(60)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    base = ("simulate", str(trace), "--cluster", "4x4", "--policy", "lucid", "--json")
    base = (*base, "--workloads", "lucid")
    calm = json.loads(cli(*base).out)["runs"][0]
    out = tmp_path / "out"
    wild = json.loads(cli(*base, "--phases", "share=1", "--out", str(out)).out)["runs"][0]
    assert calm["evictions"] == 0 < wild["evictions"]
    assert "percentage points" in (out / "report.html").read_text()
    kept = json.loads(cli(*base, "--out", str(out)).out)["runs"][0]
    assert kept["evictions"] == 0
