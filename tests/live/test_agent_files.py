"""The agent's files: what it may do, what it remembers; and how long it waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import SettingsError
from schedmate.cluster.adapter import LONGEST_WAIT_S, LiveJob, pause_s
from schedmate.cluster.bounds import Bounds, load_bounds
from schedmate.cluster.loop import newest_first
from schedmate.cluster.memory import KEPT_S, KnownJob, Memory
from schedmate.cluster.recovery.configuration import load_configuration
from schedmate.jobs import Estimate, JobSpec, WorkloadMetadata

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"


def test_without_a_file_nothing_but_looking_is_allowed() -> None:
    bounds = load_bounds(None)
    assert bounds == Bounds()
    assert not bounds.order.allowed
    assert bounds.annotate.where == "off"
    assert bounds.recovery is None
    assert not bounds.slurm.drain


def test_the_example_is_read(tmp_path: Path) -> None:
    for name in ("bounds.yaml", "recovery.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
        (tmp_path / name).chmod(0o644)
    bounds = load_bounds(tmp_path / "bounds.yaml")
    assert bounds.order.allowed
    assert bounds.order.ageing == 3 * 86_400.0
    assert bounds.recovery == tmp_path / "recovery.yaml"
    assert load_configuration(bounds.recovery).automatic == {"notify"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order: {allowd: true}", "there is no key order.allowd; did you mean allowed?"),
        ("order: {lowest: 5}", "order.lowest: 5 is given; it has to be at most 0"),
        ("order: {shortest: 7d, longest: 5m}", "'shortest' must be less"),
        ("order: {lowest: 0, highest: 0}", "'lowest' must be less"),
        ("order: {ageing: soon}", "soon"),
        ("annotate: {where: title}", "annotate.where: 'title' is given"),
        ("[1", "not YAML"),
        ("- 1", "it: [1] is given; it has to be an object with keys and values"),
        ("poll: -1", "poll: -1 is given; it has to be"),
        ("poll: .nan", "poll"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_sentence(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Exception, match="bounds.yaml|duration") as caught:
        load_bounds(path)
    assert getattr(caught.value, "exit_code", None) == 2
    assert says in str(caught.value)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text("poll: 5")
    path.chmod(0o666)
    with pytest.raises(SettingsError, match="chmod go-w"):
        load_bounds(path)
    with pytest.raises(SettingsError, match="cannot read"):
        load_bounds(tmp_path / "none.yaml")


def known(key: str, at: float = 1.0) -> KnownJob:
    spec = JobSpec(job_id="1", user="alice", repo="/w", command="python train.py")
    estimate = Estimate(duration_s=5.0, duration_p90_s=9.0, abstained=False)
    return KnownJob(key, at, spec, WorkloadMetadata(), estimate, "log-%j.out")


def test_what_is_remembered_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "memory.db"
    with Memory(path) as memory:
        memory.remember(known("1@5"))
        memory.give({"1": 500}, {"1": 0}, sure=False)
        memory.learned(["1@5"], 1.0, {"alice": (0.8, 1)})
        memory.diagnosed("3@5", 1.0)
    with Memory(path) as memory:
        assert memory.known("1@5") == known("1@5")
        assert set(memory.estimates(["1@5", "2@5"])) == {"1@5"}
        assert memory.ordering() == {"1": (500, 0)}
        assert memory.surely_given() == {}
        memory.give({"1": 500}, {"1": 0}, sure=True)
        assert memory.surely_given() == {"1": 500}
        assert memory.unlearned(["1@5", "2@5"]) == {"2@5"}
        assert memory.undiagnosed(["1@5", "3@5"]) == {"1@5"}
        assert memory.trust() == {"alice": 0.8}
        memory.forget(KEPT_S + 2.0)
        assert memory.known("1@5") is None
        assert memory.trust() == {"alice": 0.8}


def test_a_dry_run_works_on_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory(path, scratch=True) as memory:
        memory.remember(known("1@5"))
    assert not path.exists()
    with Memory(path) as memory:
        memory.remember(known("1@5"))
    with Memory(path, scratch=True) as memory:
        assert memory.known("1@5") is not None
        memory.remember(known("2@5"))
    with Memory(path, read_only=True) as memory:
        assert memory.known("2@5") is None


@given(st.floats(0.1, 1e4), st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_pauses_grow_and_are_bounded(poll_s: float, failures: int, chance: float) -> None:
    pause = pause_s(poll_s, failures, chance)
    if failures == 0:
        assert pause == poll_s
    assert 0 < pause <= max(poll_s, LONGEST_WAIT_S)
    assert pause_s(poll_s, failures + 1, chance) >= 0.75 * min(pause, LONGEST_WAIT_S)


def waiting(id_: str, user: str, submitted: float, state: str = "PENDING") -> LiveJob:
    return LiveJob(id_, id_, state, user, (), submitted, None, (), held=False, reason="")  # type: ignore[arg-type]


def test_code_is_read_of_everybody_s_newest_job_first() -> None:
    jobs = [waiting(f"a{n}", "alice", n) for n in range(5)]
    jobs += [waiting("b0", "bob", 1.5), waiting("r", "carol", 99.0, "RUNNING")]
    assert [job.id for job in newest_first(jobs)] == ["a4", "b0", "a3", "a2", "a1", "a0", "r"]
