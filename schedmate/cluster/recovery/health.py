"""What node diagnostics print, with a verdict on each node: healthy, faulty or unclear.

Reads DCGM, `nvidia-smi -q -x`, nccl-tests, kernel logs and exit codes. A test that did not run, was
interrupted, or complains only of configuration is `unclear`: it neither takes a node out of service
nor clears it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree as ET

from schedmate.base.data import whole_number
from schedmate.base.terminal import clean, counted
from schedmate.cluster.adapter import Ran
from schedmate.jobs.diagnosis import FaultyComponent

# One answer for all tools: healthy, faulty or unclear, with the words that say so.


Reader = Literal["dcgm", "nvidia-smi", "nccl-tests", "kernel-log", "exit-code"]
"""Parser of the output: of `dcgmi diag -j`, `nvidia-smi -q -x`, `all_reduce_perf` and similar,
`dmesg` or `journalctl -k`, or of any command of which only the exit code counts."""

LONGEST_OUTPUT = 8 << 20
"""Characters of a tool's output that are read; a longer one is unclear."""


class Complaint(NamedTuple):
    """One fault that a tool reports."""

    part: str
    """Its subject: `GPU 3`, `0000:3b:00`; empty for the whole node."""
    words: str
    component: FaultyComponent | None
    blames: bool
    """Whether it is a fault of the hardware. Configuration, warnings and what programs bring about
    are not."""


class Health(NamedTuple):
    """Result of a test for the nodes that it ran on."""

    state: Literal["healthy", "faulty", "unclear"]
    detail: str
    complaints: tuple[Complaint, ...] = ()


class Expected(NamedTuple):
    """Values that the administrator expects of a healthy node."""

    gpus: int | None = None
    """GPUs per node."""
    min_busbw_gbps: float | None = None
    """Bus bandwidth of the largest message [GB/s]."""
    faulty_exit_codes: frozenset[int] = frozenset({1})
    """For `exit-code`: the codes that mean a faulty node; any other but 0 is unclear."""


NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell for a command that does not exist, or may not be run."""


def assess(reader: Reader, ran: Ran, expected: Expected = Expected()) -> Health:  # noqa: B008 - frozen
    """The verdict of a command's output. It never raises: unreadable output is unclear."""
    if ran.exit_code is None:
        return Health("unclear", f"it did not end: {ran.detail or 'no answer in time'}")
    if ran.exit_code in NOT_RUN:
        reason = clean(ran.output[-200:]) or f"exit code {ran.exit_code}"
        return Health("unclear", f"it could not be run: {reason}")
    if len(ran.output) > LONGEST_OUTPUT:
        return Health("unclear", f"it printed over {LONGEST_OUTPUT >> 20} MiB")
    if reader == "exit-code":
        return _by_exit_code(ran, expected)
    return _READERS[reader](ran, expected)


def judge_complaints(complaints: list[Complaint], *, passed: int, otherwise: str) -> Health:
    """Faulty if any complaint blames the hardware, healthy if a test passed without complaints,
    else unclear."""
    listed = tuple(complaints)
    blaming = [complaint for complaint in listed if complaint.blames]
    if blaming:
        return Health("faulty", _complaints_in_words(blaming), listed)
    if listed:
        return Health("unclear", _complaints_in_words(list(listed)), listed)
    return Health("healthy", otherwise) if passed else Health("unclear", otherwise)


def _complaints_in_words(complaints: list[Complaint]) -> str:
    first = complaints[0]
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"{first.part + ': ' if first.part else ''}{first.words}{more}"


def _by_exit_code(ran: Ran, expected: Expected) -> Health:
    output = clean(ran.output.strip()[-300:]) or f"exit code {ran.exit_code}"
    if ran.exit_code == 0:
        return Health("healthy", output)
    if ran.exit_code in expected.faulty_exit_codes:
        return Health("faulty", output, (Complaint("", output, "node", True),))
    return Health("unclear", f"exit code {ran.exit_code}: {output}")


# `dcgmi diag -r LEVEL -j`: the JSON of DCGM 2 to 4.
#
# Shapes as in NVIDIA/DCGM `testing/python3/dcgm_diag_schema.json` (4.x: a result an entity,
# warnings with severity) and `nvvs/include/JsonOutput.h` (2.x and 3.x: `DCGM GPU Diagnostic`,
# `gpu_ids`, some warnings plain text). The exit code does not count: it is not zero for
# persistence mode switched off as well. Severities: `dcgmErrorSeverity_t` of
# `dcgmlib/dcgm_errors.h`.


DCGM_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
DCGM_ISOLATE, DCGM_RESET = 2, 6
"""Severities with which a GPU must not be used: isolate it; drain and reset it."""
DCGM_CONFIGURATION = frozenset({"deployment"})
"""Categories of tests whose failures, if there is no severity, are of software and its settings."""


def assess_dcgm(ran: Ran, _expected: Expected) -> Health:
    """Faulty if a failed test has a severity of `ISOLATE` or `RESET` or, in a release without
    severities, if a hardware test failed. Only skipped tests: unclear."""
    document = _dcgm_document(ran.output)
    if document is None:
        output = clean(ran.output.strip()[-200:]) or "nothing"
        return Health("unclear", f"no diagnostic in what dcgmi printed: {output}")
    if error := document.get("runtime_error"):
        return Health("unclear", f"dcgmi could not test: {clean(error, 300)}")
    complaints: list[Complaint] = []
    passed = 0
    for category, test, result in _dcgm_results(document):
        status = str(result.get("status", "")).strip().lower()
        if status == "pass":
            passed += 1
        elif status in ("fail", "warn"):
            complaints += _dcgm_complaints(category, test, result, failed=status == "fail")
        elif status not in ("skip", "skipped", "not run", "notrun", ""):
            complaints.append(
                Complaint(_dcgm_part(result), f"{test}: {clean(status, 40)}", "gpu", False)
            )
    nothing = "all that was tested passed" if passed else "dcgmi tested nothing: all was skipped"
    return judge_complaints(complaints, passed=passed, otherwise=nothing)


def _dcgm_document(text: str) -> dict[str, Any] | None:
    """The diagnostic in a text; older releases print warnings before it."""
    decoder = json.JSONDecoder(parse_int=whole_number)
    start = text.find("{")
    while start >= 0:
        try:
            document, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            if start > 10_000:  # no preamble is as long
                return None
            continue
        for root in DCGM_ROOTS:
            if isinstance(document, dict) and isinstance(document.get(root), dict):
                inner: dict[str, Any] = document[root]
                return inner
        return None
    return None


def _dcgm_results(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for category in _dicts(document.get("test_categories")):
        for test in _dicts(category.get("tests")):
            for result in _dicts(test.get("results")):
                yield str(category.get("category", "")), str(test.get("name", "a test")), result


def _dcgm_complaints(
    category: str, test: str, result: dict[str, Any], *, failed: bool
) -> Iterator[Complaint]:
    warnings = result.get("warnings")
    # in a release without severities, plain text or nothing
    by_itself = failed and category.lower() not in DCGM_CONFIGURATION
    listed = warnings if isinstance(warnings, list) and warnings else [""]
    for warning in listed:
        severity = None
        words = warning
        if isinstance(warning, dict):
            severity, words = warning.get("error_severity"), warning.get("warning", "")
        blames = severity in (DCGM_ISOLATE, DCGM_RESET) if isinstance(severity, int) else by_itself
        text = f"{test} {'failed' if failed else 'warned'}"
        if words:
            text += f": {clean(words, 300)}"
        component = "nvlink" if _is_nvlink(result, test, text) else "gpu"
        yield Complaint(_dcgm_part(result), clean(text), component, blames)  # type: ignore[arg-type]


def _is_nvlink(result: dict[str, Any], test: str, text: str) -> bool:
    words = f"{result.get('entity_group', '')} {test} {text}".lower()
    return "nvlink" in words or "nvswitch" in words


def _dcgm_part(result: dict[str, Any]) -> str:
    if "entity_id" in result:
        return f"{clean(result.get('entity_group', 'GPU'), 20)} {clean(result['entity_id'], 20)}"
    ids = clean(result.get("gpu_ids", ""), 60)
    return f"GPU {ids}" if ids else ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


# `nvidia-smi -q -x`: XML of drivers with DTD v4 to v13.
#
# Evidence against a GPU: uncorrected memory errors since the driver was loaded, a row that could
# not be remapped or waits for a reset, pages pending retirement, a reset or another recovery
# action requested by the driver, a lost GPU. Temperature, power and utilisation are none.
# Meanings: https://docs.nvidia.com/deploy/nvidia-smi/index.html and
# https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html


SMI_YES = {
    "remapped_rows/remapped_row_failure": "a faulty row of its memory could not be remapped",
    "remapped_rows/remapped_row_pending": "a row of its memory is remapped once it is reset",
    "remapped_rows/failure": "a faulty row of its memory could not be remapped",
    "remapped_rows/pending": "a row of its memory is remapped once it is reset",
    "retired_pages/pending_retirement": "a page of its memory is retired once it is reset",
    "gpu_reset_status/reset_required": "it must be reset",
    "gpu_reset_status/drain_and_reset_recommended": "the driver recommends to drain and reset it",
    "ecc_errors/aggregate/sram_threshold_exceeded": "its SRAM has had too many errors",
}
"""Elements that say `Yes`, and what that means."""

SMI_COUNTS = (
    "ecc_errors/volatile/dram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/double_bit/total",
)
"""Errors that were not corrected, since the driver was loaded."""

SMI_LOST = ("gpu is lost", "unknown error", "err!", "gpu requires reset")
"""Texts in place of the values of a GPU that does not answer."""

SMI_SHOWN = ("product_name", "serial", "uuid", "fb_memory_usage/total", "vbios_version")
"""Values that every GPU that answers has."""


def assess_nvidia_smi(ran: Ran, expected: Expected) -> Health:
    """Faulty if the driver reports so for a GPU, or if fewer GPUs answer than the node has."""
    text = ran.output
    start = text.find("<nvidia_smi_log")
    if start < 0 or "<!ENTITY" in text:
        output = clean(text.strip()[-300:])
        lost = any(word in output.lower() for word in ("gpu is lost", "fallen off the bus"))
        if lost:
            return Health("faulty", output, (Complaint("", output, "gpu", True),))
        return Health("unclear", f"no XML of nvidia-smi: {output or 'nothing'}")
    try:
        # without its head, and so without a document type: nothing is expanded or fetched
        log = ET.fromstring(text[start:])  # noqa: S314
    except (ET.ParseError, ValueError, RecursionError) as error:
        return Health("unclear", f"the XML of nvidia-smi cannot be read: {clean(error)}")
    gpus = log.findall("gpu")
    complaints = [one for gpu in gpus for one in _gpu_complaints(gpu)]
    if expected.gpus is not None and len(gpus) < expected.gpus:
        words = f"{counted(len(gpus), 'GPU')} answered of {expected.gpus}"
        complaints.append(Complaint("", words, "gpu", True))
    return judge_complaints(
        complaints, passed=len(gpus), otherwise=f"{counted(len(gpus), 'GPU')} answered"
    )


def _gpu_complaints(gpu: ET.Element) -> Iterator[Complaint]:
    part = f"GPU {clean(gpu.get('id', '?'), 40)}"
    for path, meaning in SMI_YES.items():
        if _xml_text(gpu, path) == "yes":
            yield Complaint(part, meaning, "gpu", True)
    for path in SMI_COUNTS:
        count = _xml_text(gpu, path)
        if count.isdigit() and count.strip("0"):
            memory = path.rpartition("/")[2].replace("_", " ").replace("total", "double bit")
            words = f"{count[:20]} errors since the last reset: {memory}"
            yield Complaint(part, words, "gpu", True)
    action = _xml_text(gpu, "gpu_recovery_action")
    if action not in ("", "none", "n/a"):
        yield Complaint(part, f"the driver asks for: {clean(action, 60)}", "gpu", True)
    fabric = _xml_text(gpu, "fabric/status")
    if _xml_text(gpu, "fabric/state") == "completed" and fabric not in ("", "success", "n/a"):
        yield Complaint(part, f"NVLink fabric: {clean(fabric, 60)}", "nvlink", True)
    shown = " ".join(_xml_text(gpu, path) for path in SMI_SHOWN)
    lost = next((word for word in SMI_LOST if word in shown), None)
    if lost is not None:
        yield Complaint(part, f"it does not answer: {lost}", "gpu", True)


def _xml_text(gpu: ET.Element, path: str) -> str:
    return (gpu.findtext(path) or "").strip().lower()


# The table of nccl-tests (`all_reduce_perf` and similar), of one collective over some nodes.
#
# A run is evidence against its nodes as a group: wrong values, a bandwidth below the expected one,
# an error of NCCL or CUDA. Halving (`diagnosing.py`) finds the faulty node of the group. Columns by
# release: `error` (a difference, before 2.13) or `#wrong` (a count), and `root` since then.


# prefixes of mpirun, srun and pdsh
_NCCL_PREFIX = re.compile(
    r"(?:\[\d{1,9}+,\d{1,9}+\]<std(?:out|err)>: ?|[\w.-]{1,64}+: (?= *+[\d#]))"
)
_NCCL_AVERAGE = re.compile(r"# {0,8}+Avg bus bandwidth")
_NCCL_BOUNDS = re.compile(
    r"# {0,8}+Out of bounds values {0,8}+: {0,8}+(\d{1,18}+) {1,8}+(\w{1,20}+)"
)
_NCCL_FAILED = re.compile(
    r"Test (?:NCCL|CUDA|timeout)|NCCL failure|CUDA (?:failure|error)"
    r"|remote process exited or there was a network error"
)
_NCCL_WARNED = re.compile(r"(?i:error|timed ?out|time-?out)")


def assess_nccl_tests(ran: Ran, expected: Expected) -> Health:
    """Faulty where values are wrong, the bandwidth is too low, or NCCL failed; a run without a
    table and without a failure of NCCL or CUDA is unclear."""
    complaints: list[Complaint] = []
    largest, bandwidth, rows = -1, 0.0, 0
    for raw in ran.output.splitlines():
        line = _NCCL_PREFIX.sub("", raw, count=1)
        words = line.split()
        if _is_nccl_row(words):
            rows += 1
            wrong, speed = _nccl_numbers(words[4:])
            size = int(words[0][:18])
            if wrong:
                detail = f"{wrong:g} wrong values at a size of {size} bytes"
                complaints.append(Complaint("", detail, "network", True))
            if size >= largest:
                largest, bandwidth = size, max(speed, bandwidth if size == largest else 0.0)
        elif (bounds := _NCCL_BOUNDS.search(line)) and bounds[2].upper() != "OK":
            detail = f"{bounds[1]} values out of bounds"
            complaints.append(Complaint("", detail, "network", True))
        elif _NCCL_FAILED.search(line) or ("NCCL WARN" in line and _NCCL_WARNED.search(line)):
            complaints.append(Complaint("", clean(line, 300), "network", True))
    least = expected.min_busbw_gbps
    if least is not None and rows and bandwidth < least:
        detail = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes, {least:g} expected"
        complaints.append(Complaint("", detail, "network", True))
    if ran.exit_code and not complaints:
        detail = clean(ran.output.strip()[-200:])
        return Health("unclear", f"exit code {ran.exit_code} without a failure of NCCL: {detail}")
    whole = any(_NCCL_AVERAGE.search(line) for line in ran.output.splitlines())
    if rows and not whole and not complaints:
        return Health("unclear", "the table was cut off")
    otherwise = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes" if rows else "no table"
    return judge_complaints(complaints, passed=rows, otherwise=otherwise)


def _is_nccl_row(words: list[str]) -> bool:
    """Size, count, type, operation, and at least one group of numbers."""
    return (
        len(words) >= 8
        and all(one.isascii() and one.isdigit() for one in words[:2])
        and (words[2].isidentifier() and words[3].isidentifier())
    )


def _nccl_numbers(values: list[str]) -> tuple[float, float]:
    """Wrong values, and the best bus bandwidth, of `[root] (time algbw busbw wrong) x 2`."""
    if len(values) in (5, 9):  # the column `root` comes first
        values = values[1:]
    wrong = speed = 0.0
    for start in range(0, len(values) - 3, 4):
        group = values[start : start + 4]
        speed = max(speed, _nccl_number(group[2]))
        # an `error` below one is a rounding difference of a release without counts
        number = _nccl_number(group[3])
        wrong += number if number >= 1 else 0
    return wrong, speed


def _nccl_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value == value and abs(value) < 1e18 else 0.0


# Kernel logs (`dmesg`, `journalctl -k`): Xid and SXid lines of NVIDIA's drivers.
#
# What a line means is the Failure Handler's (`logparse/failure/rules/xid.yaml`), and whether it
# blames the hardware is its `innocent.yaml`: one table for verdicts and for diagnostics.


_XID = re.compile(
    r"(?P<kind>S?Xid) \(PCI:(?P<pci>[0-9a-fA-F:.]{4,32}+)[^)]{0,32}+\): (?P<code>\d{1,6}+)"
    r"(?:, pid='?(?P<pid>\d{1,10}+|<unknown>)'?)?(?:, name=(?P<name>[^,]{1,64}+))?,? ?(?P<rest>.*)"
)
_DRIVER = re.compile(r"NVRM|SXid|\bXid\b|fallen off the bus|nvidia-nvswitch")


class XidEvent(NamedTuple):
    """An Xid or SXid event: a line of the NVIDIA driver in the kernel log."""

    switch: bool
    """Of an NVSwitch (SXid), not of a GPU."""
    pci: str
    """Domain, bus and device in lower case, `0000:3b:00`, however the driver wrote it."""
    code: int
    pid: int | None
    process: str | None
    text: str


def parse_xid(line: str) -> XidEvent | None:
    """The Xid of a line of the kernel log, if it has one."""
    match = _XID.search(line)
    if match is None:
        return None
    pid = match["pid"]
    return XidEvent(
        switch=match["kind"] == "SXid",
        pci=pci_address(match["pci"]),
        code=int(match["code"]),
        pid=int(pid) if pid and pid.isdigit() else None,
        process=clean(match["name"], 60) if match["name"] else None,
        text=clean(match["rest"], 300),
    )


def pci_address(text: str) -> str:
    """`0000:3b:00` of `00000000:3B:00.0`, `0000:3b:00.0` and `3b:00`."""
    parts = text.lower().partition(".")[0].split(":")
    parts = ["0", *parts] if len(parts) == 2 else parts
    if len(parts) != 3:
        return text.lower()
    domain, bus, device = parts
    return f"{domain.lstrip('0').rjust(4, '0')}:{bus.rjust(2, '0')}:{device.rjust(2, '0')}"


def assess_kernel_log(ran: Ran, _expected: Expected) -> Health:
    """Faulty if a line reports what no program can cause; a log without errors of the driver is
    healthy, as far as a log can tell."""
    if ran.exit_code:
        output = clean(ran.output.strip()[-200:])
        return Health("unclear", f"exit code {ran.exit_code}: {output}")
    complaints = list(dict.fromkeys(_xid_complaints(ran.output)))
    return judge_complaints(complaints, passed=1, otherwise="the kernel reports no fault of a GPU")


def _xid_complaints(text: str) -> Iterator[Complaint]:
    from schedmate.logparse.failure.plans import isolation_doubt
    from schedmate.logparse.failure.rules import load_rules, match_text

    rules = load_rules()
    for line in text.splitlines():
        if not _DRIVER.search(line):
            continue
        rule = match_text(rules, line)
        event = parse_xid(line)
        if rule is None or (event is None and not isolation_doubt(rule.id).proof):
            continue
        # a contained memory error ended one program; the node is usable (docs/diagnose.md)
        blames = isolation_doubt(rule.id).proof and rule.id != "xid-94"
        part = event.pci if event else ""
        words = f"Xid {event.code}: {rule.why}" if event else rule.why
        yield Complaint(part, clean(words, 300), rule.component, blames)


_READERS: dict[str, Callable[[Ran, Expected], Health]] = {
    "dcgm": assess_dcgm,
    "nvidia-smi": assess_nvidia_smi,
    "nccl-tests": assess_nccl_tests,
    "kernel-log": assess_kernel_log,
}
