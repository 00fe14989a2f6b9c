"""Losses that are no number, cards that others hold, and what stands on the line of a bar."""

from __future__ import annotations

import pytest

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.handler import stated_use
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory

STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9))
CANCELLED = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"


def of(text: str) -> Diagnosis:
    return diagnose(Log("job.out", [LogFile("job.out", Memory(text.encode()))]))


def trace(error: str) -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 5, in f\n    go()\n{error}\n'


LOSSES = [
    "iteration {n}/ 900 | lm loss: {loss} | 0.12 s/it",
    "{{'loss': {loss}, 'learning_rate': 5e-05, 'epoch': 0.{n}}}",
    "Epoch: [3][{n}/9000]  Time 0.312 (0.330)  Loss {loss} ({loss})",
    "step={n} train_loss={loss} lr=1e-4",
    "{n}/100 [====>.....] - ETA: 3s - loss: {loss} - val_loss: 0.3",
    '{{"epoch": {n}, "train_loss": {loss}}}',
    "Epoch {n}, training loss: tensor({loss}, device='cuda:0')",
]


@pytest.mark.parametrize("form", LOSSES)
@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf"])
def test_a_loss_that_is_no_number_to_the_end(form: str, value: str) -> None:
    well = "".join(form.format(n=n, loss=f"2.{n}") + "\n" for n in range(1, 9))
    lost = "".join(form.format(n=n, loss=value) + "\n" for n in range(9, 20))
    found = of(well + lost)
    assert (found.error_type, found.error_name) == ("unknown", "Divergence")
    assert (found.rule, found.line) == ("anomaly-nan", 9)
    assert found.plan is not None
    assert (found.plan.id, found.plan.notify) == ("nan-loss", "user")
    assert "diverged" in found.plan.summary
    assert of(well + lost + "training is done\n").line == 9, "nothing was learnt all the same"
    assert of(well + lost + well.replace("2.", "1.")).error_type == "none", "it came back"
    assert of(well + form.format(n=9, loss=value) + "\n").error_type == "none", "once is no loss"


def test_what_else_ends_a_job_whose_loss_is_no_number() -> None:
    lost = STEPS + STEPS.replace("loss: 2.", "loss: nan #")
    consequence = of(lost + trace("ValueError: input contains NaN"))
    assert (consequence.rule, consequence.line) == ("anomaly-nan", 9)
    stopped = of(lost + CANCELLED)
    assert (stopped.error_type, stopped.error_name) == ("none", "Cancelled")
    assert "NaN or infinite from line 9 on" in stopped.reason
    other = of(lost + trace("KeyError: 'x'"))
    assert other.error_name == "Key Error"
    assert "from line 9 on" in other.reason


def test_one_rank_of_many_whose_loss_is_no_number() -> None:
    text = "".join(
        f"[rank{rank}]: step {n} loss: {'nan' if rank == 3 and n > 3 else 2.1}\n"
        for n in range(9)
        for rank in range(4)
    )
    found = of(text)
    assert (found.rule, found.line, found.rank) == ("anomaly-nan", 20, 3)
    assert of(text.replace("nan", "2.2")).error_type == "none"


def test_a_validation_loss_or_one_of_several_parts_is_not_the_loss() -> None:
    text = "".join(f"step {n} | loss: 2.{n} | val_loss: nan | aux_loss: nan\n" for n in range(20))
    assert of(text).error_type == "none"


TAKEN = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 1.2 GiB is free. Process 123 has 70.00 GiB memory in use. "
        "Including non-PyTorch memory, this process has 7.90 GiB memory in use."
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total "
        "capacity; 800.00 MiB already allocated; 10.00 MiB free; 900.00 MiB reserved in total by "
        "PyTorch)"
    ),
]
TOO_LARGE = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 1 GiB is free. Including non-PyTorch memory, this process "
        "has 77.90 GiB memory in use."
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.0 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 1.20 GiB is free. Process 1 has 20 GiB memory in use. "
        "Including non-PyTorch memory, this process has 57.90 GiB memory in use."
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB. GPU 0 has a total "
        "capacity of 79.15 GiB of which 1.20 GiB is free. Process 12 has 400.00 MiB memory in use. "
        "Including non-PyTorch memory, this process has 77.50 GiB memory in use."
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total "
        "capacity; 9.00 GiB already allocated; 10.00 MiB free; 10.00 GiB reserved in total by it)"
    ),
    "torch.OutOfMemoryError: CUDA out of memory.",
]


@pytest.mark.parametrize("message", TAKEN)
def test_a_card_that_others_hold_is_not_a_model_that_does_not_fit(message: str) -> None:
    found = of(STEPS + trace(message))
    assert (found.error_name, found.rule) == ("Out of Memory", "gpu-memory-taken")
    assert found.plan is not None
    assert found.plan.id == "gpu-memory-taken"
    assert found.plan.steps[0].commands[0].startswith("nvidia-smi")
    assert found.plan.isolation == "none"


@pytest.mark.parametrize("message", TOO_LARGE)
def test_a_model_that_does_not_fit(message: str) -> None:
    found = of(STEPS + trace(message))
    assert (found.rule, found.plan and found.plan.id) == ("cuda-oom", "out-of-memory")


@pytest.mark.parametrize(
    "head",
    [
        "name: Tesla V100 major: 7 totalMemory: 15.78GiB freeMemory: 1.20GiB\n",
        "| N/A   35C    P0    55W / 300W |  14100MiB / 16160MiB |    0%      Default |\n",
    ],
)
def test_how_full_the_card_was_before_the_job_began(head: str) -> None:
    failed = "ResourceExhaustedError: OOM when allocating tensor with shape[64,512]"
    assert of(head + "started\n" + trace(failed)).rule == "gpu-memory-taken"
    empty = head.replace("freeMemory: 1.20", "freeMemory: 15.2").replace(" 14100MiB", "     3MiB")
    assert of(empty + "started\n" + trace(failed)).rule != "gpu-memory-taken"


def test_messages_without_the_numbers_say_nothing_of_who_holds_them() -> None:
    assert stated_use("CUDA out of memory. Tried to allocate 2.00 GiB.") is None


BARS = [
    " 42%|####      | 42/100 [00:10<00:14,  4.1it/s]",
    "\r 41%|###| 41/100 [00:10<00:14,  4.1it/s]\r 42%|###| 42/100 [00:10<00:14,  4.1it/s]",
    "Epoch 3:  42%|████▏     | 42/100 [00:10<00:14,  4.1it/s, loss=2.1]",
    "42/100 [====>.....] - ETA: 3s - loss: 0.2",
    "Downloading: 42%",
]


@pytest.mark.parametrize("bar", BARS)
@pytest.mark.parametrize(
    ("said", "kind", "name"),
    [
        ("Killed", "framework", "Out of Memory"),
        ("Segmentation fault (core dumped)", "framework", "Runtime Error"),
        ("Bus error (core dumped)", "infrastructure", "Runtime Error"),
        ("Terminated", "none", "Cancelled"),
    ],
)
def test_what_a_shell_says_on_the_line_of_a_bar(bar: str, said: str, kind: str, name: str) -> None:
    found = of(f"started\n{bar}{said}\n")
    assert (found.error_type, found.error_name, found.line) == (kind, name, 2)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[gpu12:28:0:28] Caught signal 11 (Segmentation fault: address not mapped)", "framework"),
        (
            "[1.1] [n1:7:0] d.c:1 UCX  ERROR caught signal 11 (Segmentation fault)",
            "framework",
        ),
        ("[gpu12:28:0:28] Caught signal 8 (Floating point exception: integer divide)", "framework"),
        (
            "[gpu12:28:0:28] Caught signal 7 (Bus error: nonexistent)",
            "infrastructure",
        ),
    ],
)
def test_a_crash_that_ucx_prints_is_not_the_network_s(line: str, kind: str) -> None:
    stack = "==== backtrace (tid: 28) ====\n 1 /opt/ucx/lib/libucs.so.0(ucs_handle_error) [0x7f]\n"
    found = of(STEPS + line + "\n" + stack + "=================\n")
    assert (found.error_type, found.error_name, found.line) == (kind, "Runtime Error", 9)
    assert found.faulty_component != "network"
