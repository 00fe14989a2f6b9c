"""What a line calls itself, and what a message quotes, counts before patterns and classes."""

from __future__ import annotations

import pytest

from schedmate.base.data import load
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.rules import Severity, is_faint, load_rules, severity
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.lines import parse_line
from schedmate.logparse.reading.storage import Memory

STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9))
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."


def of(text: str) -> Diagnosis:
    return diagnose(Log("job.out", [LogFile("job.out", Memory(text.encode()))]))


def trace(error: str, head: str = "") -> str:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 5, in f', "    go()", error]
    return "".join(f"{head}{line}\n" for line in lines)


@pytest.mark.parametrize("form", load("logparse/failure/severity.yaml")["forms"])
def test_every_form_of_a_level_knows_its_examples(form: dict[str, dict[str, list[str]]]) -> None:
    for level, examples in form["examples"].items():
        for example in examples:
            found = severity(parse_line(example.encode(), 1).text)
            assert found is not None, example
            assert found.name.lower() == level, example


@pytest.mark.parametrize(
    "text",
    [
        "host:7:7 [0] NCCL WARN Connect to 10.0.0.7 failed",
        "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        "<6>[12.3] NVRM: Xid (PCI:0000:06:00): 79",  # of the kernel, whatever its priority
        "KeyError: 'INFO'",
        "I am a sentence",
        "Warnings are off",
    ],
)
def test_no_level_is_read_into_a_line(text: str) -> None:
    assert (severity(text) or Severity.ERROR) >= Severity.ERROR


# One line in the spelling of each logger; {} is what it says.
MILD = [
    "2024-01-01 10:00:00,123 - train - WARNING - {}",
    "WARNING:root:{}",
    "[10:00:00] WARNING  {} train.py:12",
    "2024-01-01 10:00:00.1 | INFO     | a:b:1 - {}",
    "24/01/01 10:00:00 WARN TaskSetManager: {}",
    '{{"severity": "WARNING", "message": "{}"}}',
    '{{"msg": "{}", "level": 40}}',
    'time="2024-01-01T10:00:00Z" level=warning msg="{}"',
    "WARN[0003] {}",
    "W0101 10:00:00.123456 77 net.cpp:12] {}",
    "[W NPUStream.cpp:409] {}",
    "2024-01-01 10:00:00.1: W tensorflow/core/op_kernel.cc:12] {}",
    "<12>Feb 14 05:03:41 gpu-7 train: {}",
]
GRAVE = "E0101 10:00:00.123456 77 worker.cc:12] bond0: link down on both members"


@pytest.mark.parametrize("form", MILD)
def test_what_calls_itself_a_warning_loses_to_what_fails_after_it(form: str) -> None:
    warned = STEPS + form.format(OOM) + "\n"
    found = of(warned + trace("KeyError: 'x'"))
    assert (found.error_name, found.line) == ("Key Error", 10), "a later exception"
    found = of(warned + GRAVE + "\n")
    assert (found.error_type, found.line) == ("infrastructure", 10), "a later line of level E"


@pytest.mark.parametrize("form", ["INFO:root:{}", "I0101 10:00:00.1 7 a.cpp:12] {}"])
def test_what_is_but_told_loses_to_what_ranks_notice(form: str) -> None:
    notice = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1\n"
    found = of(STEPS + form.format("CUDA error: uncorrectable ECC error encountered\n") + notice)
    assert (found.error_name, found.line) == ("NCCL Timeout", 10)


@pytest.mark.parametrize(
    "noise",
    [
        *(entry["example"] for entry in load("logparse/failure/severity.yaml")["faint"]),
        "find: '/root': Permission denied",
        "/usr/bin/ls: cannot access 'x': No such file or directory",
        (
            "ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded "
            "(cannot open shared object file): ignored."
        ),
        (
            "mca_base_component_repository_open: unable to open mca_btl_openib: "
            "libibverbs.so.1: cannot open shared object file: No such file or directory"
        ),
        "ERROR:torch.distributed.elastic:failed (exitcode: -9) local_rank: 3 (pid: 8)",
    ],
)
def test_noise_and_wrappers_lose_to_what_fails_after_them(noise: str) -> None:
    found = of(f"{noise}\n{STEPS}{noise}\n" + trace("IndexError: list index out of range"))
    assert (found.error_name, found.line) == ("Index Error", 11)


def test_a_fault_of_the_file_system_is_no_noise_whoever_reports_it() -> None:
    text = "cp: error reading '/lustre/a': Input/output error\n" + trace("FileNotFoundError: b")
    found = of(STEPS + text)
    assert (found.error_type, found.line) == ("infrastructure", 9)
    assert is_faint(text)


@pytest.mark.parametrize(
    ("signal", "kind", "name"),
    [
        ("SIGKILL: 9", "framework", "Out of Memory"),
        ("SIGSEGV: 11", "framework", "Runtime Error"),
        ("SIGBUS: 7", "infrastructure", "Runtime Error"),
        ("SIGTERM: 15", "none", "Cancelled"),
        ("SIGINT: 2", "none", "Cancelled"),
    ],
)
def test_a_wrapper_s_report_of_a_signal_is_of_the_signal(signal: str, kind: str, name: str) -> None:
    raised = trace(f"subprocess.CalledProcessError: Command '['a']' died with <Signals.{signal}>.")
    found = of(STEPS + raised)
    assert (found.error_type, found.error_name) == (kind, name)
    other = of(STEPS + raised + trace("KeyError: 'x'", "[rank1]: "))
    if kind != "infrastructure":
        assert (other.error_name, other.rank) == ("Key Error", 1)


def test_a_wrapper_loses_to_a_later_line_of_level_e() -> None:
    raised = trace(
        "subprocess.CalledProcessError: Command '['a']' returned non-zero exit status 1."
    )
    found = of(STEPS + raised + "E0101 10:00:00.1 77 fs.cc:12] lustre: ost3 not responding\n")
    assert (found.error_type, found.faulty_component, found.line) == (
        "infrastructure",
        "storage",
        13,
    )
    # but not to another report that something ended
    assert of(STEPS + raised + "wrapper: ERROR job ended with status 1\n").line == 9


@pytest.mark.parametrize(
    "carrier", ["RuntimeError", "ValueError", "AssertionError", "mylib.JobFault"]
)
@pytest.mark.parametrize(
    ("message", "kind", "name"),
    [
        ("Connection error.", "infrastructure", "Connection Error"),
        ("connection refused by 10.0.0.2:3333", "infrastructure", "Connection Error"),
        ("got ConnectionResetError in worker 3", "infrastructure", "Connection Error"),
        ("KeyboardInterrupt", "none", "Interrupted"),
    ],
)
def test_what_a_message_says_beats_the_class_that_carries_it(
    carrier: str, message: str, kind: str, name: str
) -> None:
    found = of(STEPS + trace(f"{carrier}: {message}"))
    assert (found.error_type, found.error_name) == (kind, name)


def test_an_interrupt_in_a_spawned_rank_is_the_job_s() -> None:
    inner = "-- Process 0 terminated with the following error:\n" + trace("KeyboardInterrupt")
    found = of(STEPS + trace("ProcessRaisedException: ") + "\n" + inner)
    assert (found.error_type, found.error_name) == ("none", "Interrupted")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("KeyError: 'connection error'", "Key Error"),
        ("AttributeError: module 'requests' has no attribute 'ConnectionError'", "Attribute Error"),
        ("NameError: name 'KeyboardInterrupt_' is not defined", "Name Error"),
        ("ImportError: cannot import name 'ConnectTimeout' from 'x'", "Import Error"),
        ("ValueError: too many values to unpack (expected 2)", "Value Error"),
    ],
)
def test_what_quotes_the_program_says_nothing_of_a_connection(error: str, name: str) -> None:
    assert of(STEPS + trace(error)).error_name == name


def test_a_quoted_exception_is_one_of_the_infrastructure_or_a_stop() -> None:
    rules = load_rules()
    carrier = rules.by_id["py-value"]
    assert rules.quoted(carrier, "expected a KeyError") is None
    assert rules.quoted(carrier, "caught TimeoutError") is rules.by_id["py-timeout"]
