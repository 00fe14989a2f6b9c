"""What diagnostics print, written by hand after the formats of their releases."""

from __future__ import annotations

import json
from typing import Any


def dcgm4(*results: tuple[str, str, str, int | None, str]) -> str:
    """`dcgmi diag -j` of DCGM 4: (category, test, status, severity, warning) of GPU 0, 1, ..."""
    categories: dict[str, dict[str, list[Any]]] = {}
    for number, (category, test, status, severity, warning) in enumerate(results):
        result: dict[str, Any] = {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": number,
            "status": status,
        }
        if severity is not None:
            result["warnings"] = [
                {
                    "error_category": 8,
                    "error_id": 29,
                    "error_severity": severity,
                    "warning": warning,
                }
            ]
        categories.setdefault(category, {}).setdefault(test, []).append(result)
    document = {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": category,
                    "tests": [
                        {"name": name, "results": found, "test_summary": {"status": "Pass"}}
                        for name, found in tests.items()
                    ],
                }
                for category, tests in categories.items()
            ]
        },
        "metadata": {"version": "4.2.3", "Driver Version Detected": "570.86.15"},
    }
    return json.dumps(document, indent="\t")


DCGM3 = """\
WARNING: the host engine runs without nvidia-persistenced
{
    "DCGM GPU Diagnostic" : {
        "test_categories" : [
            { "category" : "Deployment", "tests" : [
                { "name" : "Denylist", "results" : [
                    { "gpu_ids" : "0,1,2,3", "status" : "PASS" } ] },
                null,
                { "name" : "Persistence Mode", "results" : [
                    { "gpu_ids" : "0,1,2,3", "status" : "%s",
                      "warnings" : [ "Persistence mode for GPU 0 is disabled." ] } ] } ] },
            { "category" : "Integration", "tests" : [
                { "name" : "PCIe", "results" : [ { "gpu_ids" : "0", "status" : "PASS" },
                    { "gpu_ids" : "1", "status" : "%s",
                      "warnings" : [ "GPU 1 has too low a bandwidth" ] } ] } ] }
        ],
        "version" : "3.1.8"
    }
}
"""

SMI = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Mon Nov  2 11:44:30 2026</timestamp>
  <driver_version>570.86.15</driver_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:01:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <gpu_reset_status>
      <reset_required>No</reset_required>
      <drain_and_reset_recommended>No</drain_and_reset_recommended>
    </gpu_reset_status>
    <gpu_recovery_action>None</gpu_recovery_action>
    <ecc_errors>
      <volatile>
        <sram_correctable>0</sram_correctable>
        <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
        <dram_correctable>12</dram_correctable>
        <dram_uncorrectable>0</dram_uncorrectable>
      </volatile>
      <aggregate><dram_uncorrectable>3</dram_uncorrectable>
        <sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
    </ecc_errors>
    <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
    <remapped_rows>
      <remapped_row_corr>0</remapped_row_corr>
      <remapped_row_unc>1</remapped_row_unc>
      <remapped_row_pending>No</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
    <fabric><state>Completed</state><status>Success</status></fabric>
  </gpu>
  <gpu id="00000000:41:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <remapped_rows>N/A</remapped_rows>
  </gpu>
</nvidia_smi_log>
"""

_HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  58680 on  gpu01 device  0 [0xb1] NVIDIA H100
#  Rank  1 Group  0 Pid  92829 on  gpu02 device  0 [0xb1] NVIDIA H100
#
#                                                              out-of-place             in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   \
algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  \
(GB/s)  (GB/s)
"""
_TAIL = """\
# Out of bounds values : {bad} {word}
# Avg bus bandwidth    : 41.7311
#
"""


def nccl(busbw: float = 83.5, wrong: int = 0, prefix: str = "", cut: bool = False) -> str:
    """A table of all_reduce_perf since 2.13."""
    rows = "".join(
        f"{size:>12} {size // 4:>13}     float     sum      -1   {size / 1e6 + 17:.2f}   40.10"
        f"   {speed:.2f}      {wrong}   {size / 1e6 + 16:.2f}   40.20   {speed:.2f}      {wrong}\n"
        for size, speed in ((8, 0.0), (1048576, busbw / 2), (134217728, busbw))
    )
    text = _HEAD + rows
    if not cut:
        text += _TAIL.format(bad=wrong, word="FAILED" if wrong else "OK")
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


NCCL_OLD = """\
#                                                     out-of-place                    in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
hostname:3442:3442 [0] NCCL INFO Launch mode Parallel
           0             0   float     sum    35.20    0.00    0.00    N/A    34.05    0.00    0.00    N/A
  1073741824     268435456   float     sum    79531   13.50   26.58  2e-06    79371   13.53   26.63  2e-06
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 13.3
"""  # noqa: E501 - as the tool prints it

NCCL_ERROR = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
gpu02: Test NCCL failure common.cu:954 'unhandled system error (run with NCCL_DEBUG=INFO)'
 .. gpu02 pid 9911: Test failure common.cu:844
"""

DMESG = """\
[Mon Nov  2 11:40:01 2026] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15
[Mon Nov  2 11:44:30 2026] NVRM: Xid (PCI:0000:3b:00): {code}, {rest}
[Mon Nov  2 11:44:31 2026] usb 1-1: new high-speed USB device number 2
"""
