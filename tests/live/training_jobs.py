"""Training jobs for the private Slurm: real code to read, and a stand-in that takes its time.

The repository says what is trained and for how many epochs; `python` on the jobs' PATH is a shell
script that sleeps and prints what the training would, so that no node needs a framework.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from slurm_testbed import Testbed

EPOCH_S = {"resnet18": 0.05, "bert-base-uncased": 0.15, "gpt2": 0.3}
"""How long an epoch of each model takes [s]."""

TRAIN = """\
import argparse
import time

import torch
import torchvision
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    data = torchvision.datasets.CIFAR10("data", train=True)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = torchvision.models.get_model(args.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        began = time.time()
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        spent = time.time() - began
        print(f"Epoch [{epoch + 1}/{args.epochs}], Loss: {loss.item():.4f}, time: {spent:.2f} s")


main()
"""

SCRIPT = """\
#!/bin/bash
#SBATCH --output=log-%x-%j.out
#SBATCH --open-mode=append
python train.py --model $1 --epochs $2
"""

PYTHON = """\
#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --model) model=$2;; --epochs) epochs=$2;; esac; shift; done
case $model in {cases}*) pause=1;; esac
echo "Loading CIFAR10 on $SLURMD_NODENAME"
if [ -e "broken-$SLURMD_NODENAME" ]; then cat failure.txt >&2; exit 1; fi
epoch=1
while [ $epoch -le "$epochs" ]; do
  sleep $pause
  echo "Epoch [$epoch/$epochs], Loss: 0.${{epoch}}321, time: $pause s"
  epoch=$((epoch + 1))
done
echo "Training complete."
"""

NODE_FAULT = """\
Traceback (most recent call last):
  File "train.py", line 21, in main
    loss.backward()
  File "/opt/conda/lib/python3.11/site-packages/torch/_tensor.py", line 522, in backward
    torch.autograd.backward(
torch.cuda.CudaError: CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call.
"""
"""What a job prints on a node whose file `broken-NODE` lies beside it."""


class TrainingJob(NamedTuple):
    """What is asked of the cluster."""

    model: str
    epochs: int

    @property
    def duration_s(self) -> float:
        """How long it runs [s]."""
        return EPOCH_S[self.model] * self.epochs


def make_repository(folder: Path) -> Path:
    """A folder with the code, its batch script, and the stand-in for Python in `bin/`."""
    (folder / "bin").mkdir(parents=True)
    cases = "".join(f"{model}) pause={pause};; " for model, pause in EPOCH_S.items())
    for name, text in (
        ("train.py", TRAIN),
        ("train.sh", SCRIPT),
        ("bin/python", PYTHON.format(cases=cases)),
        ("failure.txt", NODE_FAULT),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    folder.chmod(0o1777)  # jobs of another user write their logs here
    return folder


def submit(bed: Testbed, repository: Path, job: TrainingJob, *options: str, gpus: int = 4) -> str:
    """Submit a job; gives its id."""
    path = f"PATH={repository / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    words = (f"--gres=gpu:{gpus}", "-N1", f"--export=ALL,{path}", f"--job-name={job.model}")
    return bed.submit_file(
        repository / "train.sh", job.model, str(job.epochs), options=(*words, *options)
    )
