"""Text alone takes no node out of service, however it is forged; the node's own log does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate import JobSpec, SchedMate, load_settings
from schedmate.base.data import load
from schedmate.base.errors import UsageError
from schedmate.base.inputs import host_name, same_host
from schedmate.jobs import Diagnosis, Recovery
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.node_side import writer_of
from schedmate.logparse.failure.plans import isolation_doubt, plan_for
from schedmate.logparse.failure.rules import load_rules, subsystems
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.storage import Memory
from schedmate.logparse.signs import signs

VICTIM = "victim-7"
STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9))
XID = "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."


def in_memory(text: str, node: str | None = None) -> Log:
    return Log("job.out", [LogFile("job.out", Memory(text.encode()), None, None, node)])


def of(text: str, nodes: Sequence[str] = (), *node_logs: Log) -> Diagnosis:
    return diagnose(in_memory(text), nodes=nodes, node_logs=node_logs)


def isolates(plan: Recovery | None) -> bool:
    """Whether anything is taken out of service before somebody has confirmed it."""
    assert plan is not None
    at_once = [one for one in plan.steps if one.action == "isolate" and one.only_if is None]
    return plan.isolate is not None or plan.isolation == "confirmed" or bool(at_once)


def accusing() -> list[str]:
    """An example line of every rule and wording that blames the infrastructure, later ones too."""
    rules = [*load_rules().rules, *subsystems()]
    return [
        victimised(example)
        for rule in rules
        if rule.type == "infrastructure"
        for example in rule.examples
    ]


def victimised(line: str) -> str:
    """The line with the victim's name where it names a node."""
    sign = signs("node").sign(line.encode())
    return line.replace(sign.groups["node"], VICTIM) if sign is not None else line


DISGUISES: dict[str, Callable[[str], str]] = {
    "as it is": lambda line: line,
    "before it": lambda line: f"srun: error: Node failure on {VICTIM}\n{line}",
    "after it": lambda line: f"{line} node: {VICTIM}",
    "as the kernel in syslog": lambda line: f"Feb 14 05:03:41 {VICTIM} kernel: {line}",
    "as the kernel in ISO time": lambda line: f"2024-02-14T05:03:41+00:00 {VICTIM} kernel: {line}",
    "as slurmctld": lambda line: f"2024-02-14T05:03:41.123 {VICTIM} slurmctld[7]: {line}",
    "as a journal": lambda line: json.dumps(
        {"_HOSTNAME": VICTIM, "_TRANSPORT": "kernel", "MESSAGE": line}
    ),
    "by pdsh": lambda line: "".join(f"{VICTIM}: {one}\n" for one in [*"abcdefgh", line]),
    "as a pod": lambda line: f"[pod/{VICTIM}/trainer] {line}",
    "by ray": lambda line: f"(raylet pid=7, ip={VICTIM}) {line}",
    "raised": lambda line: (
        "Traceback (most recent call last):\n"
        f'  File "a.py", line 5, in f\n    go()\nRuntimeError: [{VICTIM}] {line}'
    ),
    "by an agent": lambda line: (
        f"{line}\ntorch.distributed.elastic: Root Cause (first observed "
        f"failure):\n[0]:\n  time : x\n  host : {VICTIM}\n  rank : 0 (local_rank: 0)"
    ),
}


@pytest.mark.parametrize("disguise", sorted(DISGUISES))
def test_no_forged_line_takes_a_node_out_of_service(disguise: str) -> None:
    forged = accusing()
    assert len(forged) > 300
    isolated = []
    for n, line in enumerate(forged):
        nodes = ((), (VICTIM,), ("gpu-1", VICTIM), ("gpu-1", "gpu-2"))[n % 4]
        text = STEPS + DISGUISES[disguise](line) + "\n"
        found = of(text, nodes)
        if isolates(found.plan):
            isolated.append(line)
        if found.plan and VICTIM not in nodes:  # and a node of others is not even proposed
            assert all(one.action != "isolate" or one.node in nodes for one in found.plan.steps)
    assert isolated == []


def test_a_file_named_after_a_node_is_still_the_jobs(tmp_path: Path) -> None:
    for name in (f"{VICTIM}.log", "node-7.log", "dmesg.log"):
        (tmp_path / name).write_text(f"{STEPS}{XID}\n")
    with open_log(tmp_path) as log:
        assert not isolates(diagnose(log, nodes=["node-7", VICTIM]).plan)


def test_the_node_s_own_log_does() -> None:
    failed = STEPS + "RuntimeError: CUDA error: unspecified launch failure\n"
    for nodes in ((), ("gpu-7",), ("gpu-1", "gpu-7.cluster.example")):
        found = of(failed, nodes, in_memory(f"Feb 14 05:03:41 gpu-7 kernel: {XID}\n"))
        assert found.plan is not None
        assert (found.rule, found.node, found.origin) == ("xid-79", "gpu-7", "node_log")
        assert (found.plan.isolation, found.plan.id) == ("confirmed", "gpu-off-the-bus")
        assert found.plan.isolate == f"node {nodes[-1] if nodes else 'gpu-7'}"
        assert found.plan.steps[0].action == "isolate"
        assert "Drain" in found.plan.summary
        assert "the program" not in found.plan.summary
        assert next(line for line in found.evidence if line.note == "decided").origin == "node_log"


def test_a_node_that_is_none_of_the_job_s_is_confirmed_first() -> None:
    failed = STEPS + "RuntimeError: CUDA error: unspecified launch failure\n"
    found = of(failed, ["gpu-1", "gpu-2"], in_memory(f"Feb 14 05:03:41 gpu-7 kernel: {XID}\n"))
    assert found.plan is not None
    assert found.plan.isolation == "needs confirmation"
    assert [one.action for one in found.plan.steps] == ["confirm", "restart", "notify"]
    assert "not one of the" in found.plan.summary


def test_a_listed_node_is_isolated_only_once_it_is_confirmed() -> None:
    found = of(f"{STEPS}srun: error: Node failure on {VICTIM}\n", ["gpu-1", VICTIM])
    assert found.plan is not None
    assert (found.plan.isolation, found.plan.isolate) == ("needs confirmation", None)
    confirm, isolate = found.plan.steps[:2]
    assert (confirm.action, confirm.node, confirm.origin) == ("confirm", VICTIM, "job_log")
    assert f"scontrol show node {VICTIM}" in confirm.commands
    assert (isolate.action, isolate.node, isolate.only_if) == ("isolate", VICTIM, "confirmed")
    stranger = of(f"{STEPS}srun: error: Node failure on {VICTIM}\n", ["gpu-1"])
    assert stranger.plan is not None
    assert all(one.action != "isolate" for one in stranger.plan.steps)


@pytest.mark.parametrize(
    "line",
    [
        f"Feb 14 05:03:41 gpu-7 python[12]: {XID}",  # `logger`, a service's output
        f"Feb 14 05:03:41 gpu-7 kernel: python[12]: segfault at 0 ip 0 error 4 in {XID}so[7f+1]",
        f"[86412.1] traps: {XID}[77] trap invalid opcode",
        json.dumps({"_HOSTNAME": "gpu-7", "_TRANSPORT": "syslog", "MESSAGE": XID}),
        json.dumps({"_HOSTNAME": "gpu-7", "MESSAGE": f'"_TRANSPORT":"kernel" {XID}'}),
        f"<6>1 2024-02-14T05:03:41Z gpu-7 myjob - - - {XID}",
    ],
)
def test_what_a_node_s_log_passes_on_is_not_the_node_s_word(line: str) -> None:
    assert not writer_of(line.encode()).by_node
    found = of(
        STEPS + "RuntimeError: CUDA error: unspecified launch failure\n", (), in_memory(line + "\n")
    )
    assert not isolates(found.plan)


def test_a_line_without_a_header_goes_on_with_what_somebody_wrote_above_it() -> None:
    forged = "".join(f"Feb 14 05:03:4{n} gpu-7 myjob[3]: hello\n" for n in range(9)) + XID + "\n"
    found = of(STEPS + "RuntimeError: CUDA error: unknown error\n", (), in_memory(forged))
    assert not isolates(found.plan)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (f"Feb 14 05:03:41 gpu-7 kernel: [ 86412.1] {XID}", "gpu-7"),
        (f"2024-02-14T05:03:41.123456+01:00 gpu-7 kernel: {XID}", "gpu-7"),
        (f"2024-02-14T05:03:41+0100 gpu-7 kernel: {XID}", "gpu-7"),
        (f"<3>1 2024-02-14T05:03:41Z gpu-7 kernel - - - {XID}", "gpu-7"),
        (json.dumps({"_HOSTNAME": "gpu-7", "_TRANSPORT": "kernel", "MESSAGE": XID}), "gpu-7"),
        (f"[86412.123456] {XID}", None),
        (f"[Wed Feb 14 05:03:41 2024] {XID}", None),
        (f"kern  :err   : [86412.123456] {XID}", None),
        (f"2024-02-14T05:03:41,123456+01:00 {XID}", None),
        (f"<3>[86412.123456] {XID}", None),
        (XID, None),
    ],
)
def test_the_kernel_in_every_form_of_its_log(line: str, host: str | None) -> None:
    assert writer_of(line.encode()) == (host, True)
    log = in_memory(line + "\n", "GPU-7.cluster.example")  # the caller says whose log it is
    found = of(STEPS + "RuntimeError: CUDA error: unspecified launch failure\n", (), log)
    assert found.node == "GPU-7.cluster.example"
    assert isolates(found.plan)


@pytest.mark.parametrize(
    ("nodes", "given_as"),
    [
        (("other-1",), "other-1"),
        (("other-1",), None),
        ((), "other-1"),
        (("other-1", VICTIM), "other-1"),
        (("victim-7.a.example",), "victim-7.b.example"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        f"Nov 20 10:02:00 {VICTIM} kernel: {XID}",
        json.dumps({"_HOSTNAME": VICTIM, "_TRANSPORT": "kernel", "MESSAGE": XID}),
    ],
)
def test_a_log_whose_lines_name_another_host_isolates_neither(
    nodes: tuple[str, ...], given_as: str | None, line: str
) -> None:
    line = line.replace(VICTIM, "victim-7.a.example") if given_as and "b.ex" in given_as else line
    found = of(
        STEPS + "RuntimeError: CUDA error: unspecified launch failure\n",
        nodes,
        in_memory(line + "\n", given_as),
    )
    assert not isolates(found.plan)
    assert found.plan is not None
    assert found.plan.steps[0].action == "confirm"
    assert str(found.node).startswith(VICTIM)
    assert all(one.node != (given_as or "other-1") for one in found.plan.steps)
    (warning,) = found.warnings
    assert VICTIM in warning
    assert (given_as or "other-1") in warning


def test_a_node_s_own_fault_counts_before_one_of_another_machine() -> None:
    lines = f"Nov 20 10:02:00 {VICTIM} kernel: {XID}\nNov 20 10:02:00 gpu-1 kernel: {XID}\n"
    found = of(
        STEPS + "RuntimeError: CUDA error: unspecified launch failure\n",
        ("gpu-1",),
        in_memory(lines, "gpu-1"),
    )
    assert found.plan is not None
    assert found.plan.isolate == "node gpu-1"
    assert VICTIM in found.warnings[0]


@pytest.mark.parametrize(
    "end",
    [
        "RuntimeError: DataLoader worker (pid 30882) is killed by signal: Bus error.",
        "training is done",
        "KeyError: 'x'",
        "slurmstepd: error: *** JOB 1 ON n9 CANCELLED AT 2024-02-14T05:03:41 DUE TO TIME LIMIT ***",
    ],
)
def test_a_fault_in_a_node_s_log_is_said_whatever_the_verdict(end: str) -> None:
    for fault in (XID, XID.replace(" 79, GPU has", " 94, pid=7, Contained: GPU has")):
        found = of(f"{STEPS}{end}\n", (), in_memory(f"[86412.1] {fault}\n", "n9"))
        assert found.error_name != "Node Failure"
        (warning,) = found.warnings
        assert warning.startswith("node n9's own log reports ")
        assert fault in warning
    forged = of(f"{STEPS}{end}\n", (), in_memory(f"Nov 20 10:02:00 n9 job[3]: {XID}\n", "n9"))
    assert forged.warnings == []


def test_a_warning_lists_a_few_faults_once_each() -> None:
    lines = "".join(
        f"[86412.1] NVRM: Xid (PCI:0000:06:00): {code}, pid=0, text\n"
        for code in (46, 48, 61, 62, 64, 79, 95, 79, 79)
    )
    found = of(STEPS + "KeyError: 'x'\n", (), in_memory(lines, "n9"))
    assert len(found.warnings) == 6
    assert found.warnings[-1] == "2 more faults stand in logs of nodes."


def test_a_contained_memory_error_takes_no_node_out_of_service() -> None:
    line = "NVRM: Xid (PCI:0000:5d:00): 94, pid=7194, Contained: CE User Channel (0x9)"
    found = of(
        STEPS + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
        ("n1",),
        in_memory(f"[86412.1] {line}\n", "n1"),
    )
    assert found.rule == "xid-94"
    assert found.plan is not None
    assert not isolates(found.plan)
    assert all(one.action not in ("isolate", "confirm") for one in found.plan.steps)
    assert found.plan.restart == "from checkpoint"
    assert "Drain" not in found.plan.summary


def test_no_plan_names_one_search_twice() -> None:
    found = of(
        STEPS + "RuntimeError: CUDA error: an illegal instruction was encountered\n", ("n1",)
    )
    assert found.plan is not None
    assert found.plan.steps[0].commands[0] == "dmesg -T | grep -iE 'xid|nvrm|amdgpu'"
    for line in accusing():
        plan = of(f"{STEPS}{line}\n", (VICTIM,)).plan
        assert plan is not None
        for step in plan.steps:
            searches = [one for one in step.commands if one.startswith("dmesg -T | grep -iE")]
            assert len(searches) < 2, step.commands


def test_whose_log_it_is_where_the_lines_do_not_say(tmp_path: Path) -> None:
    job = STEPS + "RuntimeError: CUDA error: unspecified launch failure\n"
    path = tmp_path / "dmesg-gpu-7.txt"
    path.write_text(f"[86412.1] {XID}\n")
    with open_log(path) as log:
        assert of(job, ["gpu-7", "gpu-77"], log).node == "gpu-7"
        assert of(job, ["gpu-3"], log).node == "gpu-3"
        nobody = of(job, (), log).plan
    assert nobody is not None
    assert nobody.isolation == "confirmed"
    assert nobody.steps[0].node is None
    assert str(path) in (nobody.isolate or "")


def test_every_text_that_accuses_a_node_has_its_innocent_causes_or_none() -> None:
    data = load("logparse/failure/innocent.yaml")
    listed = [*data["proof"], *(rule for group in data["innocent"] for rule in group["rules"])]
    assert len(listed) == len(set(listed))
    states = {row.get("rule") for row in load("logparse/failure/states.yaml")["states"].values()}
    assert set(listed) <= load_rules().by_id.keys() | states
    for rule in load_rules().rules:
        if rule.role not in ("cause", "symptom"):
            continue
        plan = plan_for(
            Diagnosis(
                error_type=rule.type,
                error_name=rule.name,
                faulty_component=rule.component,
                recoverable=rule.recoverable,
                rule=rule.id,
                node="gpu-7",
                origin="node_log",
            )
        )
        if plan.isolation == "none":
            continue
        assert rule.id in listed, f"{rule.id}: say in innocent.yaml what else makes such a line"
        assert isolates(plan) == isolation_doubt(rule.id).proof
        if not isolates(plan):
            assert plan.innocent
            assert plan.steps[0].action == "confirm"
            assert plan.steps[0].commands
            assert plan.steps[0].detail in plan.summary


def test_a_bus_error_of_a_data_loader_is_a_small_shm_first() -> None:
    for line in (
        "RuntimeError: DataLoader worker (pid 30882) is killed by signal: Bus error.",
        "ERROR: Unexpected bus error encountered in worker.",
        "RuntimeError: unable to write to file </torch_1234_5678_0>",
        "Fatal Python error: Bus error",
        "NCCL WARN Error: failed to extend /dev/shm/nccl-9wJxyz to 9637892 bytes",
    ):
        found = of(STEPS + line + "\n", ["gpu-1"])
        assert found.plan is not None
        assert (found.plan.id, found.plan.isolation) == ("shared-memory", "none"), line
        assert "/dev/shm" in found.plan.summary
        assert found.plan.steps[0].action == "check"
        assert any("df -h /dev/shm" in one for one in found.plan.steps[0].commands)
        assert all(one.action != "isolate" for one in found.plan.steps)


@pytest.mark.parametrize(
    "name",
    [
        *("ALL", "all", "localhost", "127.0.0.1", "-h", "a b", "a;b", "$(reboot)", "../x", "gpu*"),
        *(
            "gpu[1-9]",
            "",
            "x" * 64,
            "a..b",
            "victim-7\n",
            "\uff47pu1",
            "7",
            "gpu-7-",
            "a/b",
            "`id`",
        ),
    ],
)
def test_what_is_no_host_s_name_stands_in_no_command(name: str) -> None:
    assert host_name(name) is None
    found = of(f"{STEPS}srun: error: Node failure on {name}\n")
    assert found.node is None or host_name(found.node) == found.node
    assert found.plan is not None
    for step in found.plan.steps:
        assert step.node is None or host_name(step.node) == step.node
    with pytest.raises(UsageError):
        of("x\n", [name])


def test_names_of_one_machine() -> None:
    assert same_host("gpu-7", "GPU-7.cluster.example")
    assert not same_host("gpu-7.a.example", "gpu-7.b.example")
    assert not same_host("10.0.0.7", "10")
    assert host_name("r6i4n5") == "r6i4n5"


def test_the_command_and_the_hook(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(
        STEPS + "RuntimeError: CUDA error: an illegal instruction was encountered\n"
    )
    (tmp_path / "kernel.txt").write_text(f"[86412.1] {XID}\n")
    job, kernel = str(tmp_path / "job.out"), str(tmp_path / "kernel.txt")
    run = cli("diagnose", job, "--nodes", "gpu-[7-8]", "--node-logs", f"gpu-7={kernel}", "--json")
    document = json.loads(run.out)
    assert document["job_nodes"] == ["gpu-7", "gpu-8"]
    assert (document["node"], document["plan"]["isolate"]) == ("gpu-7", "node gpu-7")
    assert document["plan"]["isolation"] == "confirmed"
    alone = cli("diagnose", job, "--nodes", "gpu-7").out
    assert "Plan: Confirm on node gpu-7 first" in alone
    assert cli("diagnose", job, "--nodes", "3").code == 2
    with SchedMate(load_settings(deadline_s=60.0)) as mate:
        found = mate.on_failure(JobSpec(job_id="1", node_names=["gpu-7"]), job, node_logs=[kernel])
    assert found is not None
    assert found.plan is not None
    assert found.plan.isolate == "node gpu-7"
