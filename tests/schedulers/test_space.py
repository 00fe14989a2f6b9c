"""Free GPUs: against a model that knows every GPU by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schedmate.schedulers.model import Cluster, Job, Node
from schedmate.schedulers.space import Space


def job(index: int, gpus: int, **more: float) -> Job:
    return Job(str(index), index, 0.0, gpus, **more)  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=40),
)
def test_whole_gpus_agree_with_counting(sizes: list[int], steps: list[tuple[bool, int]]) -> None:
    space = Space(Cluster(tuple(Node(str(n), size) for n, size in enumerate(sizes))))
    free = [set(range(size)) for size in sizes]
    held: list[tuple[Job, tuple[tuple[int, int], ...]]] = []
    for index, (release, gpus) in enumerate(steps):
        if release and held:
            one, allocation = held.pop(gpus % len(held))
            space.give(one, allocation)
            for node, mask in allocation:
                free[node] |= {gpu for gpu in range(8) if mask >> gpu & 1}
            continue
        one = job(index, gpus)
        found = space.find(one)
        fits = [len(gpus_free) for gpus_free in free if len(gpus_free) >= gpus]
        if gpus <= max(sizes):
            assert (found is not None) == bool(fits)
        if found is None:
            continue
        assert sum(mask.bit_count() for _, mask in found) == gpus
        if gpus <= max(sizes):
            # Best fit: the fullest node that has room.
            ((node, _),) = found
            assert len(free[node]) == min(fits)
        assert space.take(one, found)
        for node, mask in found:
            taken = {gpu for gpu in range(8) if mask >> gpu & 1}
            assert taken <= free[node]
            free[node] -= taken
        held.append((one, found))
        assert space.idle == sum(map(len, free))


def test_a_gang_takes_whole_nodes_and_fills_up_a_used_one() -> None:
    space = Space(Cluster.parse("4x8"))
    space.take(job(0, 3), ((0, 0b111),))
    found = space.find(job(1, 20))
    assert found is not None
    assert [mask.bit_count() for _, mask in found] == [4, 8, 8]
    assert found[0][0] == 0


def test_what_is_booked_in_a_transaction_is_undone() -> None:
    space = Space(Cluster.parse("2x4"))
    first = job(0, 3)
    held = space.find(first)
    assert held is not None
    space.take(first, held)
    before = (list(space.free), space.idle)
    space.begin()
    space.give(first, held)
    second = job(1, 8)
    whole = space.find(second)
    assert whole is not None
    space.take(second, whole)
    assert space.find(job(2, 1)) is None
    space.rollback()
    assert (list(space.free), space.idle) == before
    assert space.find(job(3, 8)) is None


def test_fractions_fill_up_a_gpu_before_another_is_opened() -> None:
    space = Space(Cluster.parse("1x2"))
    shares = [job(n, 1, share=share) for n, share in enumerate((0.5, 0.3, 0.4, 0.2))]
    gpus = []
    for one in shares:
        found = space.find(one)
        assert found is not None
        assert space.take(one, found)
        gpus.append(found)
    assert gpus[0] == gpus[1] == gpus[3] != gpus[2]
    assert space.idle == 0
    assert space.find(job(9, 1, share=0.7)) is None
    space.give(shares[2], gpus[2])
    assert space.idle == 1


def test_processors_and_memory_of_a_node_run_out_too() -> None:
    space = Space(Cluster((Node("a", 8, cpus=16, memory_mb=1000), Node("b", 8, cpus=16))))
    greedy = job(0, 2, cpus=16)
    found = space.find(greedy)
    assert found is not None
    space.take(greedy, found)
    other = space.find(job(1, 1, cpus=1))
    assert other is not None
    assert other[0][0] != found[0][0]
    space.give(greedy, found)
    large = space.find(job(2, 1, memory_mb=2000))
    assert large is not None
    assert large[0][0] == 1


def test_virtual_clusters_types_and_roles_keep_jobs_apart() -> None:
    cluster = Cluster.parse("1x4:A100@nlp,1x4:T4@vision,1x4:T4@nlp").with_role([2], "profiling")
    space = Space(cluster)
    assert space.find(job(0, 4, vc="nlp", gpu_type="T4")) is None  # type: ignore[arg-type]
    assert space.find(job(0, 4, vc="nlp")) == ((0, 0b1111),)  # type: ignore[arg-type]
    assert space.find(job(0, 4, vc="nlp"), "profiling") == ((2, 0b1111),)  # type: ignore[arg-type]
