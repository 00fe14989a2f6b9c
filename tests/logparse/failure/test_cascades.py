"""Cascades: whatever other ranks, launchers and wrappers print, what the root rank says wins."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.reading import open_log

ROOT = Path(__file__).parents[3]
# What a rank may die of: its last words, the name, the type.
FAULTS = {
    "key": ("KeyError: 'input_ids'", "Key Error", "script"),
    "oom": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Out of Memory",
        "framework",
    ),
    "ecc": (
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "ECC Error",
        "infrastructure",
    ),
    "mount": (
        "OSError: [Errno 116] Stale file handle: '/mnt/data/shard-7.tar'",
        "S3/Storage Error",
        "infrastructure",
    ),
    "assert": ("AssertionError: sequence length must divide", "Assertion Error", "script"),
    "shape": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)",
        "Runtime Error",
        "framework",
    ),
}
# What others say when a rank is gone, and what launchers print at the end.
CASCADES = yaml.safe_load((ROOT / "benchmarks" / "labels" / "cascades.yaml").read_text())
NOTICES = CASCADES["notices"]
LAUNCHERS = {
    **CASCADES["launchers"],
    "accelerate": """\
Traceback (most recent call last):
  File "/usr/bin/accelerate", line 8, in <module>
    sys.exit(main())
subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.
""",
    "none": "",
}


def trace(error: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "train.py", line 5, in <module>',
        "    main()",
        error,
    ]


def steps(rank: int) -> list[str]:
    return [f"iteration {n}/ 900 | lm loss: 2.{n}{rank} | 0.12 s/it" for n in range(1, 9)]


def of(path: Path, text: str) -> Diagnosis:
    path.write_text(text)
    with open_log(path) as log:
        return diagnose(log)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job.out"


@given(data=st.data())
@settings(max_examples=30)
def test_the_root_rank_wins_however_the_ranks_interleave(data: st.DataObject) -> None:
    world = data.draw(st.integers(2, 6), "world")
    root = data.draw(st.integers(0, world - 1), "root")
    error, name, kind = FAULTS[data.draw(st.sampled_from(sorted(FAULTS)), "fault")]
    said = {rank: [data.draw(st.sampled_from(NOTICES))] for rank in range(world) if rank != root}
    queues = {rank: [line.format(rank=rank) for line in lines] for rank, lines in said.items()}
    queues[root] = trace(error)
    lines = [f"[rank{rank}]: {line}" for rank in range(world) for line in steps(rank)]
    while any(queues.values()):
        rank = data.draw(st.sampled_from([rank for rank, left in queues.items() if left]))
        lines.append(f"[rank{rank}]: {queues[rank].pop(0)}")
    text = "\n".join(lines) + "\n" + LAUNCHERS[data.draw(st.sampled_from(sorted(LAUNCHERS)))]
    with TemporaryDirectory() as folder:
        found = of(Path(folder) / "job.out", text)
    assert (found.error_type, found.error_name, found.rank) == (kind, name, root)
    assert found.line is not None
    assert text.split("\n")[found.line - 1] == f"[rank{root}]: Traceback (most recent call last):"


@given(data=st.data())
@settings(max_examples=20)
def test_the_root_rank_wins_among_files(data: st.DataObject) -> None:
    world = data.draw(st.integers(2, 5), "world")
    root = data.draw(st.integers(0, world - 1), "root")
    error, name, kind = FAULTS[data.draw(st.sampled_from(sorted(FAULTS)), "fault")]
    timed = data.draw(st.booleans(), "timed")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for rank in range(world):
            late = data.draw(st.integers(1, 900)) if rank != root else 0
            stamp = f"2024-05-01 10:{late // 60:02}:{late % 60:02} ERROR " if timed else ""
            last = trace(error) if rank == root else [data.draw(st.sampled_from(NOTICES))]
            words = [f"{stamp}last words", *(line.format(rank=rank) for line in last)]
            text = "\n".join([*steps(rank), *words]) + "\n"
            (folder / f"rank_{rank}.log").write_text(text)
        with open_log(folder) as log:
            found = diagnose(log)
    assert (found.error_type, found.error_name, found.rank) == (kind, name, root)


# What a node, link or daemon says that no rule knows.
UNKNOWN = (
    "quartz-agent: host trn-12 went offline",
    "bond0: link down on both members",
    "blade-agent: fatal: nfs mount /home went stale",
    "zx-health: nvswitch 2 reported fatal",
)


@given(data=st.data())
@settings(max_examples=30)
def test_a_wording_that_no_rule_knows_counts_before_what_it_brings_about(
    data: st.DataObject,
) -> None:
    world = data.draw(st.integers(2, 5), "world")
    root = data.draw(st.integers(0, world - 1), "root")
    said = data.draw(st.sampled_from(UNKNOWN), "said")
    assert load_rules().line(said) is None
    chatter = st.sampled_from(
        ["reading shard 7", "", "cache is warm", "Saving the state of worker"]
    )
    lines = [f"[rank{rank}]: {line}" for rank in range(world) for line in steps(rank)]
    lines += ["WARNING: could not import apex: No module named 'apex'"]
    lines += [f"[rank{root}]: {said}"]
    first = len(lines)
    for rank in data.draw(st.permutations([rank for rank in range(world) if rank != root])):
        lines += [
            f"[rank{root}]: {data.draw(chatter)}" for _ in range(data.draw(st.integers(0, 3)))
        ]
        lines.append(f"[rank{rank}]: {data.draw(st.sampled_from(NOTICES)).format(rank=rank)}")
    text = "\n".join(lines) + "\n" + LAUNCHERS[data.draw(st.sampled_from(sorted(LAUNCHERS)))]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.out"
        path.write_text(text)
        with open_log(path) as log:
            found = diagnose(log, locator=data.draw(st.sampled_from(["scan", "binary"])))
    assert (found.error_type, found.line, found.source) == ("infrastructure", first, "wording")


@pytest.mark.parametrize("launcher", sorted(LAUNCHERS))
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_launchers_report_is_no_cause(job: Path, fault: str, launcher: str) -> None:
    error, name, kind = FAULTS[fault]
    text = "\n".join([*steps(0), *trace(error)]) + "\n" + LAUNCHERS[launcher]
    found = of(job, text)
    assert (found.error_type, found.error_name, found.line) == (kind, name, 9)


@pytest.mark.parametrize(
    "joint",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_a_chain_of_exceptions_begins_at_its_first(job: Path, joint: str) -> None:
    chain = [*trace("OSError: [Errno 5] Input/output error: '/gpfs/x'"), "", joint, ""]
    chain += trace("RuntimeError: could not read the shard")
    found = of(job, "\n".join([*steps(0), *chain]) + "\n")
    assert (found.error_type, found.error_name) == ("infrastructure", "S3/Storage Error")
    assert found.line == 9


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_ray_wrapper_is_named_after_what_it_wraps(job: Path, fault: str) -> None:
    error, name, kind = FAULTS[fault]
    raised = error.partition(":")[0].rpartition(".")[2]
    remote = [
        f"ray.exceptions.RayTaskError({raised}): ray::train_fn() (pid=3, ip=10.0.0.2)",
        '  File "train.py", line 9, in train_fn',
        "    step(batch)",
        error,
    ]
    whole = [*trace("x")[:-1], *remote]
    for lines in (whole, remote):
        found = of(job, "\n".join([*steps(0), *lines]) + "\n")
        assert (found.error_type, found.error_name, found.line) == (kind, name, 9)


def test_a_fault_that_was_retried_is_not_the_one_that_ended_the_job(job: Path) -> None:
    retried = "OSError: [Errno 110] Connection timed out, retrying in 1s (attempt 1/3)"
    lines = [*steps(0)[:4], retried, retried, *steps(0)[4:], *trace("KeyError: 'labels'")]
    found = of(job, "\n".join(lines) + "\n")
    assert (found.error_name, found.line) == ("Key Error", 11)
    assert of(job, "\n".join(lines[:-4]) + "\n").error_type == "none"


def test_a_lost_node_explains_the_dead_actor(job: Path) -> None:
    lines = [
        "(raylet) The node with node id: 6ee1 has been marked dead: too many missed heartbeats.",
        *trace("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this."),
        "The actor is dead because its node has died. Node Id: 677df2a9020c5db45e755b0078c469e2",
    ]
    for text in (lines, lines[1:]):
        found = of(job, "\n".join(text) + "\n")
        assert (found.error_type, found.error_name) == ("infrastructure", "Node Failure")
        assert found.line == 1


def test_frames_without_their_headline_belong_to_the_exception_below(job: Path) -> None:
    cut = ['  File "a.py", line 1, in run', "    go()", "    ^^^^", "KeyError: 'x'"]
    assert of(job, "\n".join(cut) + "\n").line == 1


def test_a_message_of_several_lines_begins_with_its_first(job: Path) -> None:
    text = """\
terminate called after throwing an instance of 'std::runtime_error'
  what():  NCCL error: remote process exited or there was a network error, NCCL version 2.14.3
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.
Last error:
NET/IB : Got completion from peer 10.0.0.1<39138> with error 12, opcode 0, len 0, vendor err 129
"""
    found = of(job, "".join(line + "\n" for line in steps(0)) + text)
    assert (found.error_name, found.line) == ("Network Error", 9)


def test_an_exception_in_the_form_of_repr(job: Path) -> None:
    text = """\
Error executing job with overrides: ['mode=train']
Error in call to target 'models.encoder.Encoder':
AttributeError("'NoneType' object has no attribute 'values'")
full_key: encoder
"""
    found = of(job, text)
    assert (found.error_name, found.line) == ("Attribute Error", 2)


THREADS = """\
Exception in thread Thread-3:
Traceback (most recent call last):
Exception in thread Thread-2:
  File "threading.py", line 1016, in _bootstrap_inner
Traceback (most recent call last):
    self.run()
  File "threading.py", line 1016, in _bootstrap_inner
    raise OSError("handle is closed")
OSError: handle is closed
    raise OSError("handle is closed")
OSError: handle is closed
"""


def test_threads_that_end_at_the_same_time_are_not_the_program(job: Path) -> None:
    before = "".join(line + "\n" for line in steps(0))
    assert of(job, before + THREADS).error_type == "none"
    found = of(job, before + THREADS + "\n".join(trace("KeyError: 'x'")) + "\n")
    assert (found.error_name, found.line) == ("Key Error", 20)
    thread = ["Exception in thread Thread-1:", *trace("OSError: handle is closed")]
    found = of(job, before + "\n".join([*thread, *trace("KeyError: 'x'")]) + "\n")
    assert (found.error_name, found.line) == ("Key Error", 14)


def test_an_exception_whose_message_is_a_traceback_is_one_report(job: Path) -> None:
    text = """\
File "main.py", line 316, in <module>
    main()
OSError: Traceback (most recent call last):
  File "worker.py", line 138, in _worker_loop
    samples = load()
OSError: Unable to open file (file signature not found)
"""
    found = of(job, text)
    assert (found.error_name, found.line) == ("Dataset Loading", 1)


def test_a_message_goes_on_in_the_next_line(job: Path) -> None:
    text = """\
OSError: Can't write data (file write failed: time = Tue Dec  1 08:28:02 2020
, filename = '/tmp/m.h5', errno = 28, error message = 'No space left on device')
"""
    assert of(job, text).line == 1


def test_a_report_begins_with_its_first_line_whatever_its_words(job: Path) -> None:
    text = """\
[56.1] amdgpu 0000:83:00.0: amdgpu: [gfxhub] fault of some other wording, ring stuck
[56.2] amdgpu 0000:83:00.0: amdgpu: GPU reset begin!
"""
    assert of(job, "".join(line + "\n" for line in steps(0)) + text).line == 9


def test_the_message_of_an_exception_may_begin_in_the_next_line(job: Path) -> None:
    text = """\
ImportError:
/usr/lib/python3/dist-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so
: undefined symbol: _ZN3c104cuda9SetDeviceEi
"""
    found = of(job, text)
    assert (found.error_name, found.line) == ("Import Error", 1)


def test_success_after_an_alarm_is_no_failure(job: Path) -> None:
    assert of(job, "agent: lost connection to the controller\nsuccess!\n").error_type == "none"


def test_a_line_of_progress_resembles_no_failure(job: Path) -> None:
    text = "step 3/40 | loss 1.0 | lr 1e-4 | 0.12 s/it\n"
    found = of(job, text + "srun: error: n1: task 0: Exited with exit code 3\n")
    assert (found.error_type, found.line) == ("unknown", 2)


def test_what_a_library_logs_and_then_raises_is_reported_where_it_was_logged(
    tmp_path: Path,
) -> None:
    said = "ps-lite/van.h:56: Check failed: ready_ call Start() first"
    job = tmp_path / "job.log"
    frames = ["Traceback (most recent call last):", '  File "/job/train.py", line 3, in <module>']
    lines = [f"[13:04:31] logging.h:215: {said}", *frames, f"mxnet.base.MXNetError: {said}"]
    job.write_text("".join(line + "\n" for line in lines))
    with open_log(job) as log:
        found = diagnose(log)
    assert found.line == 1
    assert found.evidence[0].line == 1
    steps = [f"step {n}/90 | loss 2.{n} | lr 1e-4 | 0.12 s/it" for n in range(1, 9)]
    lines[1:1] = steps
    job.write_text("".join(line + "\n" for line in lines))
    with open_log(job) as log:
        assert diagnose(log).line == 10
