"""A chat, a prompt or a sample in a job's log that quotes a machine's failure is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.logparse.failure.handler import diagnose, open_job

MACHINES = (
    "Kernel panic - not syncing: Fatal exception in interrupt",
    "mce: [Hardware Error]: Machine check events logged",
    "watchdog: BUG: soft lockup - CPU#14 stuck for 22s! [python:12345]",
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
)
QUOTED = (
    "User: my server says {} what now?\n",
    "user: {}\nassistant: That means the node is broken.\n",
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\nReplace the node.<|im_end|>\n",
    "### Prompt:\nExplain: {}\n### Response:\nIt means trouble.\n",
    "{{'role': 'user', 'content': '{}'}}\n",
    "> {}\n",
    'sample 3: "{}"\n',
)
WRITTEN = (
    "{}\n",
    "[12345.678901] {}\n",
    "Nov 23 10:00:00 gpu07 kernel: [12345.678901] {}\n",
    "gpu07 kernel: {}\n",
)
STEPS = "".join(f"step {step}/100 loss 1.5 0.5 s/it\n" for step in range(40))


def _name(folder: Path, text: str) -> str | None:
    path = folder / "job.log"
    path.write_text(STEPS + text)
    with open_job([path]) as log:
        return diagnose(log).error_name


@pytest.mark.parametrize("form", QUOTED)
@pytest.mark.parametrize("words", MACHINES)
def test_what_a_chat_quotes_is_no_node_s_failure(tmp_path: Path, words: str, form: str) -> None:
    assert _name(tmp_path, form.format(words)) != "Node Failure"


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("words", MACHINES)
def test_what_the_kernel_writes_still_is(tmp_path: Path, words: str, form: str) -> None:
    assert _name(tmp_path, form.format(words)) == "Node Failure"
