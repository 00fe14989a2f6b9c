"""`nvidia-smi -q -x`: XML of drivers with DTD v4 to v13.

Evidence against a GPU: uncorrected memory errors since the driver was loaded, a row that could not
be remapped or waits for a reset, pages pending retirement, a reset or another recovery action
requested by the driver, a lost GPU. Temperature, power and utilisation are none. Meanings:
https://docs.nvidia.com/deploy/nvidia-smi/index.html and
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from schedmate.recovery.health.verdict import Complaint, Expected, Health, judged
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean, counted

YES = {
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

COUNTS = (
    "ecc_errors/volatile/dram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/double_bit/total",
)
"""Errors that were not corrected, since the driver was loaded."""

LOST = ("gpu is lost", "unknown error", "err!", "gpu requires reset")
"""Texts in place of the values of a GPU that does not answer."""

SHOWN = ("product_name", "serial", "uuid", "fb_memory_usage/total", "vbios_version")
"""Values that every GPU that answers has."""


def assess(ran: Ran, expected: Expected) -> Health:
    """Faulty if the driver reports so for a GPU, or if fewer GPUs answer than the node has."""
    text = ran.output
    start = text.find("<nvidia_smi_log")
    if start < 0 or "<!ENTITY" in text:
        said = clean(text.strip()[-300:])
        lost = any(word in said.lower() for word in ("gpu is lost", "fallen off the bus"))
        if lost:
            return Health("faulty", said, (Complaint("", said, "gpu", True),))
        return Health("unclear", f"no XML of nvidia-smi: {said or 'nothing'}")
    try:
        # without its head, and so without a document type: nothing is expanded or fetched
        log = ET.fromstring(text[start:])  # noqa: S314
    except (ET.ParseError, ValueError, RecursionError) as error:
        return Health("unclear", f"the XML of nvidia-smi cannot be read: {clean(error)}")
    gpus = log.findall("gpu")
    complaints = [one for gpu in gpus for one in _of(gpu)]
    if expected.gpus is not None and len(gpus) < expected.gpus:
        words = f"{counted(len(gpus), 'GPU')} answered of {expected.gpus}"
        complaints.append(Complaint("", words, "gpu", True))
    return judged(complaints, passed=len(gpus), otherwise=f"{counted(len(gpus), 'GPU')} answered")


def _of(gpu: ET.Element) -> Iterator[Complaint]:
    part = f"GPU {clean(gpu.get('id', '?'), 40)}"
    for path, meaning in YES.items():
        if _text(gpu, path) == "yes":
            yield Complaint(part, meaning, "gpu", True)
    for path in COUNTS:
        count = _text(gpu, path)
        if count.isdigit() and count.strip("0"):
            memory = path.rpartition("/")[2].replace("_", " ").replace("total", "double bit")
            words = f"{count[:20]} errors since the last reset: {memory}"
            yield Complaint(part, words, "gpu", True)
    action = _text(gpu, "gpu_recovery_action")
    if action not in ("", "none", "n/a"):
        yield Complaint(part, f"the driver asks for: {clean(action, 60)}", "gpu", True)
    fabric = _text(gpu, "fabric/status")
    if _text(gpu, "fabric/state") == "completed" and fabric not in ("", "success", "n/a"):
        yield Complaint(part, f"NVLink fabric: {clean(fabric, 60)}", "nvlink", True)
    shown = " ".join(_text(gpu, path) for path in SHOWN)
    lost = next((word for word in LOST if word in shown), None)
    if lost is not None:
        yield Complaint(part, f"it does not answer: {lost}", "gpu", True)


def _text(gpu: ET.Element, path: str) -> str:
    return (gpu.findtext(path) or "").strip().lower()
