"""What the tools that test nodes print speaks against a node only where it should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outputs import DCGM3, DMESG, NCCL_ERROR, NCCL_OLD, SMI, dcgm4, nccl

from schedmate.cluster.adapter import Ran
from schedmate.cluster.recovery.health import Expected, Reader, assess, parse_xid, pci_address

PERSISTENCE = "Persistence mode for GPU 0 is disabled."


@pytest.mark.parametrize(
    ("output", "exit_code", "state"),
    [
        (dcgm4(("Hardware", "memory", "Pass", None, "")), 0, "healthy"),
        # the exit code is 226 as well where only a setting is wrong
        (dcgm4(("Deployment", "software", "Fail", 5, PERSISTENCE)), 226, "unclear"),
        (dcgm4(("Hardware", "memory", "Fail", 2, "row remap failed")), 226, "faulty"),
        (dcgm4(("Hardware", "memory", "Fail", 6, "reset")), 226, "faulty"),
        (dcgm4(("Hardware", "memory", "Warn", 1, "monitor it")), 0, "unclear"),
        (dcgm4(("Hardware", "memory", "Fail", 4, "triage")), 226, "unclear"),
        (dcgm4(("Hardware", "memory", "Fail", None, "")), 226, "faulty"),
        (dcgm4(("Hardware", "memory", "Skip", None, "")), 0, "unclear"),
        (dcgm4(("Hardware", "memory", "A new word", None, "")), 0, "unclear"),
        (DCGM3 % ("PASS", "PASS"), 0, "healthy"),
        (DCGM3 % ("FAIL", "PASS"), 226, "unclear"),
        (DCGM3 % ("PASS", "FAIL"), 226, "faulty"),
        ('{"DCGM Diagnostic": {"runtime_error": "unsupported GPU 0"}}', 0, "unclear"),
        ('{"DCGM GPU Diagnostic": {"version": "4.2.3"}}', 0, "unclear"),
        ("Error: unable to establish a connection to the specified host: localhost", 1, "unclear"),
        ("bash: dcgmi: command not found", 127, "unclear"),
        ("{" * 5000, 0, "unclear"),
    ],
)
def test_dcgm(output: str, exit_code: int, state: str) -> None:
    health = assess("dcgm", Ran(exit_code, output))
    assert health.state == state, health


def test_dcgm_says_which_gpu_and_why() -> None:
    health = assess(
        "dcgm",
        Ran(
            0,
            dcgm4(
                ("Deployment", "software", "Fail", 5, PERSISTENCE),
                ("Hardware", "NVLink", "Fail", 2, "too many CRC errors"),
            ),
        ),
    )
    assert health.detail == "GPU 1: NVLink failed: too many CRC errors"
    assert [one.component for one in health.complaints] == ["gpu", "nvlink"]
    assert [one.blames for one in health.complaints] == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("", "", "healthy"),
        ("pending>No<", "pending>Yes<", "faulty"),
        ("failure>No<", "failure>Yes<", "faulty"),
        ("required>No<", "required>Yes<", "faulty"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2", "faulty"),
        ("parity>0<", "parity>1<", "faulty"),
        ("exceeded>No<", "exceeded>Yes<", "faulty"),
        ("action>None<", "action>Reset<", "faulty"),
        ("<status>Success", "<status>Insufficient Resources", "faulty"),
        ("<product_name>NVIDIA H100 80GB HBM3", "<product_name>GPU is lost", "faulty"),
        ("</nvidia_smi_log>", "", "unclear"),
        ("<?xml", '<!ENTITY a "b"><?xml', "unclear"),
    ],
)
def test_nvidia_smi(old: str, new: str, state: str) -> None:
    assert old in SMI
    health = assess("nvidia-smi", Ran(0, SMI.replace(old, new)))
    assert health.state == state, health


def test_a_gpu_that_is_missing_speaks_against_the_node() -> None:
    health = assess("nvidia-smi", Ran(0, SMI), Expected(gpus=4))
    assert (health.state, health.detail) == ("faulty", "2 GPUs answered of 4")
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot"
    assert assess("nvidia-smi", Ran(15, lost)).state == "faulty"
    assert assess("nvidia-smi", Ran(9, "NVIDIA-SMI has failed")).state == "unclear"


@pytest.mark.parametrize(
    ("output", "exit_code", "state"),
    [
        (nccl(), 0, "healthy"),
        (nccl(prefix="[1,0]<stdout>:"), 0, "healthy"),
        (nccl(prefix="0: "), 0, "healthy"),
        (nccl(busbw=20.0), 0, "faulty"),
        (nccl(wrong=7), 1, "faulty"),
        (nccl(cut=True), 0, "unclear"),
        (NCCL_OLD.replace("26.6", "86.6"), 0, "healthy"),
        (NCCL_OLD, 0, "faulty"),
        (NCCL_ERROR, 3, "faulty"),
        ("srun: error: Unable to allocate resources", 1, "unclear"),
        ("", 0, "unclear"),
    ],
)
def test_nccl_tests(output: str, exit_code: int, state: str) -> None:
    health = assess("nccl-tests", Ran(exit_code, output), Expected(min_busbw_gbps=70.0))
    assert health.state == state, health


@pytest.mark.parametrize(
    ("code", "rest", "state"),
    [
        ("79", "pid=0, GPU has fallen off the bus.", "faulty"),
        ("95", "pid=7194, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "faulty"),
        ("94", "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", "unclear"),
        ("13", "pid=7512, Graphics SM Warp Exception", "unclear"),
        ("31", "pid=1312, name=python3, Ch 00000008, intr 00000000. MMU Fault", "unclear"),
        ("999", "pid=1, nobody knows", "unclear"),
    ],
)
def test_kernel_logs(code: str, rest: str, state: str) -> None:
    health = assess("kernel-log", Ran(0, DMESG.format(code=code, rest=rest)))
    assert health.state == state, health
    assert health.complaints[0].part == "0000:3b:00"


def test_a_quiet_kernel_log_and_one_that_cannot_be_read() -> None:
    assert assess("kernel-log", Ran(0, "[ 1.0] usb 1-1: new device\n")).state == "healthy"
    assert assess("kernel-log", Ran(1, "dmesg: read kernel buffer failed")).state == "unclear"


def test_an_xid_line_in_parts() -> None:
    event = parse_xid("NVRM: Xid (PCI:00000000:3B:00.0): 31, pid='1312', name=python3, Ch 8, MMU")
    assert event is not None
    assert event[:5] == (False, "0000:3b:00", 31, 1312, "python3")
    assert event.text == "Ch 8, MMU"
    switch = parse_xid("nvidia-nvswitch1: SXid (PCI:0000:aa:00.0): 24007, Severity 1 Engine")
    assert switch is not None
    assert (switch.switch, switch.code, switch.pid) == (True, 24007, None)
    assert parse_xid("NVRM: GPU at PCI:0000:3b:00") is None


@pytest.mark.parametrize("text", ["00000000:3B:00.0", "0000:3b:00.0", "0000:3b:00", "3b:00"])
def test_a_pci_address_has_one_spelling(text: str) -> None:
    assert pci_address(text) == "0000:3b:00"


@pytest.mark.parametrize(
    ("ran", "state"),
    [
        (Ran(0, "ok"), "healthy"),
        (Ran(1, "fan broken"), "faulty"),
        (Ran(2, "usage"), "unclear"),
        (Ran(127, "not found"), "unclear"),
        (Ran(None, "", "no end within 60 s"), "unclear"),
    ],
)
def test_exit_codes(ran: Ran, state: str) -> None:
    assert assess("exit-code", ran).state == state


WARNINGS = st.lists(
    st.fixed_dictionaries(
        {"warning": st.text(max_size=20), "error_severity": st.integers(0, 7)},
        optional={"error_id": st.integers(0, 120), "error_category": st.integers(0, 12)},
    ),
    min_size=1,
    max_size=3,
)
RESULTS = st.fixed_dictionaries(
    {
        "entity_group": st.sampled_from(["GPU", "NvSwitch", "CPU"]),
        "entity_group_id": st.integers(0, 9),
        "entity_id": st.integers(0, 9),
        "status": st.sampled_from(["Pass", "Fail", "Warn", "Skip", "Not Run"]),
        "warnings": WARNINGS,
    }
)


@given(results=st.lists(RESULTS, min_size=1, max_size=6))
def test_only_what_is_to_be_isolated_or_reset_blames_a_gpu(results: list[dict[str, Any]]) -> None:
    """Documents of the shape of DCGM 4's own schema, in which every failure has a severity."""
    tests = [{"name": "memory", "results": results, "test_summary": {"status": "Pass"}}]
    categories = [{"category": "Hardware", "tests": tests}]
    text = json.dumps({"DCGM Diagnostic": {"test_categories": categories}})
    health = assess("dcgm", Ran(0, text))
    told = [one for one in results if one["status"] in ("Fail", "Warn")]
    blamed = any(one["error_severity"] in (2, 6) for result in told for one in result["warnings"])
    assert (health.state == "faulty") is blamed
    if health.state == "healthy":
        assert not told
        assert any(one["status"] == "Pass" for one in results)


READERS: list[Reader] = ["dcgm", "nvidia-smi", "nccl-tests", "kernel-log", "exit-code"]


@given(
    reader=st.sampled_from(READERS),
    exit_code=st.none() | st.integers(-64, 255),
    output=st.text(max_size=200)
    | st.sampled_from([nccl(), SMI, DCGM3, DMESG]).flatmap(
        lambda text: st.integers(0, len(text)).map(lambda end: text[:end])
    ),
)
def test_nothing_that_is_printed_is_too_much(
    reader: Reader, exit_code: int | None, output: str
) -> None:
    health = assess(reader, Ran(exit_code, output), Expected(gpus=2, min_busbw_gbps=1.0))
    assert health.state in ("healthy", "faulty", "unclear")
    assert health.detail
    if exit_code is None or exit_code in (126, 127):
        assert health.state == "unclear"
