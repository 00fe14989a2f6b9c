#!/usr/bin/env bash
# The main job on the bundled example repository, with the bundled synthetic history.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export SCHEDMATE_HISTORY=$directory/history
PS4=$'\n$ '

# Forty finished jobs, made up for this demonstration.
(set -x; schedmate history import examples/history.jsonl)

# A job those resemble.
(set -x; schedmate analyze examples/train_repo \
    --command "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60")
