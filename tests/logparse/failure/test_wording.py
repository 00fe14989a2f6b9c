"""Lines that no rule knows: what they say by their form, and about what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.data import load
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.rules import (
    SUBSYSTEMS_FILE,
    failed_subsystem,
    load_rules,
    speaks_of_trouble,
    subsystems,
)
from schedmate.logparse.reading import open_log

STEPS = [f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it" for n in range(1, 9)]


def of(path: Path, lines: list[str]) -> Diagnosis:
    path.write_text("".join(line + "\n" for line in lines))
    with open_log(path) as log:
        return diagnose(log)


def test_every_form_and_every_subsystem_knows_its_examples() -> None:
    for entry in load(str(SUBSYSTEMS_FILE))["says"]:
        assert speaks_of_trouble(entry["example"]), entry
    for entry in load(str(SUBSYSTEMS_FILE))["over"]:
        assert speaks_of_trouble(entry["example"]), entry
    for entry in load(str(SUBSYSTEMS_FILE))["not"]:
        assert not speaks_of_trouble(entry["example"]), entry
    for one in subsystems():
        for example in one.examples:
            found = failed_subsystem(example)
            assert found is not None, example
            assert found.id == one.id, example


def test_every_subsystem_has_a_name_of_the_taxonomy_and_a_plan() -> None:
    names = {(rule.type, rule.name) for rule in load_rules().rules}
    for one in subsystems():
        assert (one.type, one.name) in names
        assert one.source.startswith("https://")
        plan = plan_for(
            Diagnosis(error_type=one.type, error_name=one.name, source="wording", recoverable=True)
        )
        assert plan.isolate is None, "nothing is isolated on a wording alone"


@pytest.mark.parametrize(
    ("line", "kind", "component"),
    [
        ("quartzfs: lost the metadata server, all file systems are offline", None, None),
        ("blade-agent: fatal: nfs mount /home went stale", "infrastructure", "storage"),
        ("E: hpc-relay: bond1 link lost on both ports", "infrastructure", "network"),
        ("podrunner: node gpu-7 went down", "infrastructure", "node"),
        ("zx-health: accelerator device 3: hardware fault", "infrastructure", "gpu"),
        ("FATAL: vocabulary file vocab.bpe does not exist", "script", None),
    ],
)
def test_trouble_that_a_log_ends_in(
    tmp_path: Path, line: str, kind: str | None, component: str | None
) -> None:
    assert load_rules().line(line) is None, "this is about lines that no rule knows"
    found = of(tmp_path / "job.out", [*STEPS, line])
    if kind is None:
        assert found.error_type in ("infrastructure", "unknown")
    else:
        assert (found.error_type, found.faulty_component) == (kind, component)
        assert found.source == "wording"
    assert found.line == 9
    assert of(tmp_path / "job.out", [line, *STEPS]).error_type == "none"
    ended = [*STEPS, line, "training completed"]
    assert of(tmp_path / "job.out", ended).error_type == "none"


@pytest.mark.parametrize(
    "usual",
    [
        "W0207 07:02:3{n}.1 1400 ag_logging.py:146] Entity <function f at 0x7f{n}> was dropped",
        "To add an exception for this directory, call:",
        "3 of {n}4 books are missing from the shelf",
    ],
)
def test_what_training_went_on_after_begins_no_report(tmp_path: Path, usual: str) -> None:
    healthy = [line for n, step in enumerate(STEPS) for line in (usual.format(n=n), step)]
    fault = "lmgrd: license server is down"
    lines = [*healthy, usual.format(n=9), "the seat was denied", fault]
    found = of(tmp_path / "job.out", lines)
    assert (found.line, found.rule) == (len(lines) - 1, "of-site-service")
    again = of(tmp_path / "job.out", [fault, *STEPS, fault])
    assert again.line == len(STEPS) + 2, "what was overcome once may be the end the next time"


def test_the_exit_below_says_nothing_against_the_wording(tmp_path: Path) -> None:
    lines = [*STEPS, "zx-health: nvswitch 2 reported fatal", "wrapper: exited with exit code 1"]
    found = of(tmp_path / "job.out", lines)
    assert (found.error_name, found.line) == ("NVLink Error", 9)


def test_an_exceptions_words_say_whose_fault_it_is(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 5, in <module>', "    go()"]
    said = "RuntimeError: shard server: lost connection to the broker"
    found = of(tmp_path / "job.out", [*STEPS, *trace, said])
    assert (found.error_type, found.error_name) == ("infrastructure", "Connection Error")
    found = of(tmp_path / "job.out", [*STEPS, *trace, "RuntimeError: shapes do not match"])
    assert (found.error_type, found.error_name) == ("script", "Runtime Error")


def test_where_a_file_lies_names_no_subsystem() -> None:
    assert failed_subsystem("ERROR could not parse /nfs/lustre/gpfs/table.cfg") is None


@given(st.text(max_size=300))
def test_any_text_has_an_answer(text: str) -> None:
    assert failed_subsystem(text) is None or speaks_of_trouble(text)


ENDS = [
    ("hg_core_send_input_cb() NA callback returned error (NA_HOSTUNREACH)", "infrastructure"),
    ("ping failed on x4304c1s6b0n0: No reply from x4307c2s6b0n0 after 87s", "infrastructure"),
    ("start failed on x4102c5s2b0n0: No VNIs available in internal allocator", "infrastructure"),
    ("failed to acquire job resources; job startup aborted (jobid: 12)", "infrastructure"),
    ("HEALTH_WARN 150 requests are blocked > 32 sec; 11 osds have slow requests", "infrastructure"),
    ('nginx: [emerg] mkdir() "/var/cache/nginx" failed (13: Permission denied)', "script"),
    ("Error authenticating with application credential: scope not allowed", "script"),
    ("Exiting because a job execution failed. Look above for error message", "unknown"),
]


@pytest.mark.parametrize(("line", "kind"), ENDS)
def test_without_any_training_the_very_last_lines_are_the_result(
    tmp_path: Path, line: str, kind: str
) -> None:
    job = tmp_path / "job.log"
    found = of(job, ["loading modules", line])
    assert (found.error_type, found.line) == (kind, 2)


@pytest.mark.parametrize(
    "last",
    [
        "worker - success: 0.005 - failed to download: 0.995 - count: 10000",
        "  wall hanging         : 701.9993 (Pos: 1.0, Neg: 702.0)",
        "    --kill-on-bad-exit=1 \\",
        "A: Alice , it 's no dream . I 'm sorry ... Dan 's dead .",
        "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    ],
)
def test_counters_prose_and_scripts_are_no_result(tmp_path: Path, last: str) -> None:
    assert of(tmp_path / "job.log", ["start", last]).error_type == "none"
    assert of(tmp_path / "job.log", [*STEPS, last]).error_type == "none"


def test_where_training_was_seen_a_mere_wording_of_no_subsystem_says_nothing(
    tmp_path: Path,
) -> None:
    found = of(tmp_path / "job.log", [*STEPS, "some samples could not be parsed"])
    assert found.error_type == "none"


def test_a_general_exception_is_of_what_the_rest_of_its_message_says(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 12, in <module>',
        "    run()",
        "jobs.JobError: step 3 of 4 was not done",
        "Cause: the connection to the controller was lost",
    ]
    found = of(tmp_path / "job.log", lines)
    assert (found.error_type, found.source, found.line) == ("infrastructure", "wording", 1)
    lines[-1] = "Cause: the table has 3 columns"
    assert of(tmp_path / "job.log", lines).error_type == "script"


FENCE = "-" * 74
REPORT = [
    "At least one pair of MPI processes could not be set up, and the runtime",
    "failed to receive scheduled heartbeat communications from a remote",
    "process:",
    "",
    "  Process name: [[1,0],3]",
]


def test_a_report_between_rules_of_dashes_is_one_and_begins_with_its_first_line(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job.log"
    found = of(job, ["mpirun -n 4 ./a.out", FENCE, *REPORT, FENCE])
    assert (found.error_type, found.line) == ("infrastructure", 3)
    calm = ["There was an error registering counters as", "variables.  Your job will continue."]
    assert of(job, ["mpirun -n 4 ./a.out", FENCE, *calm, FENCE]).error_type == "none"
    warned = ["WARNING: the device could not be", "opened, an error occurred"]
    assert of(job, ["mpirun -n 4 ./a.out", FENCE, *warned, FENCE]).error_type == "none"
    assert of(job, [*STEPS, FENCE, "some could not", "be read", FENCE]).error_type == "none"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("salloc: error: Job submit/allocate failed: Invalid qos specification", "script"),
        ("srun: error: Unable to allocate resources: Partition in DOWN state", "infrastructure"),
        ("srun: error: Multi_prog config file jobs.conf is too large", "script"),
        ("qsub: Illegal attribute or resource value Resource_List.ncpus", "script"),
        ("qsub: cannot connect to server pbs01 (errno=111)", "infrastructure"),
        ("FATAL:   While pulling image from oci registry: stream cut", "infrastructure"),
        ("FATAL:   image docker://lab/train:v9 does not exist in the registry", "script"),
    ],
)
def test_what_was_asked_for_wrongly_is_not_the_cluster_s_fault(
    tmp_path: Path, line: str, kind: str
) -> None:
    assert of(tmp_path / "job.log", ["starting", line]).error_type == kind
