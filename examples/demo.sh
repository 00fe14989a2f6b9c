#!/usr/bin/env bash
# The main job on the bundled example repository, with the bundled synthetic history.
# `demo.sh DIRECTORY` keeps that history, and some synthetic logs, there instead of in demo/.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=${1:-demo}
mkdir -p "$directory"
export SCHEDMATE_HISTORY=$directory/history
PS4=$'\n$ '

# Forty finished jobs, made up for this demonstration.
(set -x; schedmate history import examples/history.jsonl)
python examples/make_logs.py "$directory"

# A job those resemble.
(set -x; schedmate analyze examples/train_repo \
    --command "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60")

cat >&2 <<END

The history stays in $directory/history, with some logs beside it. To go on with them in this shell:

export PATH="$(dirname "$(command -v schedmate)"):\$PATH" SCHEDMATE_HISTORY="$(realpath "$directory")/history"
END
