"""Whose an exception is: by its frames, by what it refuses, by what only passes it on."""

from __future__ import annotations

import re

import pytest

from schedmate.base.data import load
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory

STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9))
OWN = '  File "/home/ann/run/{name}", line 5, in {function}\n    {source}\n'
LIB = '  File "/venv/lib/python3.11/site-packages/hub/load.py", line 9, in load\n    {source}\n'


def of(*texts: str) -> Diagnosis:
    text = "".join(texts).encode()
    return diagnose(Log("job.out", [LogFile("job.out", Memory(text))]))


def own(source: str, function: str = "main", name: str = "train.py") -> str:
    return OWN.format(name=name, function=function, source=source)


def trace(*parts: str) -> str:
    return "Traceback (most recent call last):\n" + "".join(parts)


@pytest.mark.parametrize("kind", ["wrappers", "passed", "interpreted", "polling", "over"])
def test_each_wording_knows_its_example(kind: str) -> None:
    for entry in load("logparse/failure/side.yaml")[kind]:
        assert re.search(entry["pattern"], entry["example"]), entry["example"]


@pytest.mark.parametrize(
    ("frames", "error", "side"),
    [
        ([own('raise ValueError("no")')], "ValueError: no", "script"),
        ([own("assert world % 8 == 0")], "AssertionError", "script"),
        ([own("a, b = pair")], "ValueError: too many values to unpack (expected 2)", "script"),
        ([own("mean = total / count")], "ZeroDivisionError: division by zero", "script"),
        ([own("x.shape")], "AttributeError: 'NoneType' object has no attribute 'shape'", "script"),
        # compiled code, or a package that lacks what the program asks for
        ([own("y = x @ w")], "RuntimeError: expected scalar type Half", "script"),
        ([own("torch.foo")], "AttributeError: module 'torch' has no attribute 'foo'", "script"),
        # a library refuses what it is asked for; what fails deep inside is its own
        (
            [own("load(args.model)"), LIB.format(source="raise OSError(name)")],
            "OSError: None is not a local folder and is not a valid model identifier",
            "script",
        ),
        (
            [own("load(x)"), LIB.format(source="raise ValueError(x)")],
            "ValueError: unsupported layout",
            "script",
        ),
        (
            [own("fit(x)"), *2 * [LIB.format(source="step(x)")], LIB.format(source="raise E(x)")],
            "ValueError: unsupported layout",
            "framework",
        ),
        # what was missing or damaged was not refused
        ([own("load(x)"), LIB.format(source="return read(x)")], "MemoryError", "framework"),
        (
            [own("load(x)"), LIB.format(source="return read(x)")],
            "_pickle.UnpicklingError: pickle data was truncated",
            "framework",
        ),
        ([LIB.format(source="assert ok")], "AssertionError", "framework"),
        ([LIB.format(source="x.y")], "AttributeError: 'NoneType' object has no attribute 'y'",
         "framework"),
    ],
)  # fmt: skip
def test_frames_and_words_say_whose_it_is(frames: list[str], error: str, side: str) -> None:
    found = of(STEPS, trace(*frames), f"{error}\n")
    assert (found.error_type, found.line) == (side, 9), found.reason


SYMBOL = "ImportError: /opt/flash_attn.so: undefined symbol: _ZNK3c105Error4whatEv\n"
KEY = "KeyError: 'lr'\n"
INNER = trace(own("import flash_attn", "<module>", "model.py"))
CAUGHT = trace(own("build()", "load"), own("return names[key]", "build"))
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    "outer",
    [
        "RuntimeError: Failed to import models.llama because of the following error:\n",
        "RuntimeError: Engine core initialization failed. See root cause above.\n",
        "Exception: trial failed, check the worker log\n",
        "submitit.core.utils.UncompletedJobError: Job 12 (task: 0) produced no output\n",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_wrapper_never_outranks_what_it_wraps(outer: str, *, first: bool) -> None:
    wrapper = trace(own("model()")) + outer
    between = "".join(f"some other line {n}\n" for n in range(21))
    parts = [wrapper, between, INNER + SYMBOL] if first else [INNER + SYMBOL, between, wrapper]
    found = of(STEPS, *parts)
    assert (found.error_name, found.error_type) == ("Import Error", "script")
    alone = of(STEPS, wrapper)
    assert alone.error_type != "none", "where it stands alone it is the failure"


def test_what_is_caught_and_said_again_is_the_failure() -> None:
    again = trace(own('raise RuntimeError("no model") from None', "load"))
    found = of(STEPS, CAUGHT, KEY, DURING, again, "RuntimeError: no model\n")
    assert found.error_name == "Key Error"
    other = trace(own("load()"), own("y = x @ w", "fall_back"))
    found = of(STEPS, CAUGHT, KEY, DURING, other, "RuntimeError: expected scalar type Half\n")
    assert found.error_name == "Runtime Error", "another failure while it was handled"


@pytest.mark.parametrize("fault", ["an illegal memory access was encountered",
                                   "unspecified launch failure", "misaligned address",
                                   "device-side assert triggered"])  # fmt: skip
def test_a_kernel_out_of_bounds_is_no_fault_of_a_machine(fault: str) -> None:
    error = f"RuntimeError: CUDA error: {fault}\n"
    found = of(STEPS, error)
    assert found.error_type in ("framework", "script")
    assert (found.faulty_component, found.plan and found.plan.id) == (None, "gpu-script")
    assert found.plan is not None
    assert found.plan.isolation == "none"
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    if "assert" not in fault:
        assert of(STEPS, error, ecc).error_name == "ECC Error"
    lost = "NVRM: Xid (PCI:0000:b3:00): 79, pid=1, GPU has fallen off the bus.\n"
    assert of(STEPS, lost, error).error_type == "infrastructure"


def test_one_rank_of_many_leaves_a_doubt_and_many_ranks_are_no_place() -> None:
    error = "[rank{}]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    lost = "[rank{}]: NCCL WARN socketProgress: Connection closed by remote peer\n"
    one = of(STEPS, error.format(2), *(lost.format(rank) for rank in (0, 1, 3)))
    assert one.rank == 2
    assert any("one rank of many" in doubt for doubt in one.doubts)
    several = of(STEPS, *(error.format(rank) for rank in range(4)))
    assert (several.rank, several.node) == (None, None)
    assert not any("one rank of many" in doubt for doubt in several.doubts)


@pytest.mark.parametrize(
    "line",
    [
        "Node 192.168.0.81:8000 is not ready yet\n",
        "ERROR launcher: connection to 10.0.0.7:29500 refused, retrying in 5 s\n",
        "Waiting for the node to be ready: connection refused\n",
    ],
)
def test_what_waits_or_tries_again_fails_only_if_it_is_given_up(line: str) -> None:
    assert of(line * 3).error_type == "none"
    assert of(line * 3, "serving on port 8000\n").error_type == "none"
    assert of(line * 3, trace(own("go()")), "KeyError: 'x'\n").error_name == "Key Error"


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("FloatingPointError: Minimum loss scale reached (0.0001).\n", "unknown"),
        ("Exception: Current loss scale already at minimum - cannot decrease scale\n", "unknown"),
        ("AssertionError: Rank 12: found NaN in local forward loss calculation.\n", "unknown"),
        ("ValueError: Input X contains NaN.\n", "script"),
    ],
)
def test_divergence_is_a_class_of_its_own(text: str, side: str) -> None:
    found = of(STEPS, trace(own("train()")), text)
    assert (found.error_name, found.error_type, found.leaning) == ("Divergence", side, "script")
    assert found.plan is not None
    assert found.plan.id == "nan-loss"
    assert bool(found.doubts) is (side == "unknown")


def test_symptoms_commit_to_nothing_unless_a_cause_is_found() -> None:
    rules = [rule for rule in load_rules().rules if rule.role == "symptom"]
    for rule, line in ((one, line) for one in rules for line in one.examples):
        found = of(STEPS, line + "\n")
        assert (found.error_type, found.undecided) == ("unknown", True), line
        assert (found.rule, found.likely) == (rule.id, rule.type), line
        assert found.doubts, line
        assert found.plan is not None
        assert found.plan.isolation == "none", line
        assert found.plan.diagnose, f"what would decide it: {line}"
    for rule in rules:
        found = of(STEPS, rule.examples[0] + "\n", trace(own("go()")), "KeyError: 'x'\n")
        assert (found.error_name, found.error_type) == ("Key Error", "script"), rule.id
