"""The cases of bombs.yaml, and a process with limits that reads one of them."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import Any

import yaml

CPU_S = 20
"""CPU time that any case may take [s]; what does not end takes more than that."""
BUDGET_S = 0.3
"""CPU time that an extraction is given [s]."""
MEMORY_BYTES = 1 << 30
BIG = "a b\n" * 400_000
PROGRAM = "print(1)\n"

_PUMP = re.compile(r"\{(pump|count|chain):(.*?):(\d+)\}", re.DOTALL)


def cases() -> dict[str, dict[str, Any]]:
    """`files` to write, and the `command` to analyse or the configuration to `read`, by name."""
    held = yaml.safe_load(Path(__file__).with_name("bombs.yaml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for name, text in held["programs"].items():
        files = {"train.py": text, "big.txt": "{big}"}
        found[f"program-{name}"] = {"files": files, "command": "python train.py"}
    for name, files in held["files"].items():
        found[f"file-{name}"] = {"files": files, "read": next(iter(files))}
    for name, launch in held["launches"].items():
        files = {"train.py": PROGRAM, **launch.get("files", {})}
        found[f"launch-{name}"] = {"files": files, "command": launch["command"]}
    return found


def pumped(text: str) -> str:
    """`{pump:a:3}` is `aaa`, `{count:a#:2}` is `a1a2`; `@` is the number before `#`."""

    def fill(match: re.Match[str]) -> str:
        kind, piece, count = match[1], match[2], int(match[3])
        if kind == "pump":
            return piece * count
        numbers = range(1, count + 1)
        return "".join(piece.replace("#", str(n)).replace("@", str(n - 1)) for n in numbers)

    return _PUMP.sub(fill, text).replace("{big}", BIG)


def write(case: dict[str, Any], root: Path) -> None:
    for name, text in case["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pumped(text), encoding="utf-8")


def read(root: str, command: str | None, config: str | None) -> None:
    """Analyse a repository, or read one of its files, in a process of its own under limits."""
    from schedmate.agent.configs.gin import parse_gin
    from schedmate.agent.configs.interpolation import resolve_interpolations
    from schedmate.agent.configs.reader import read_config
    from schedmate.agent.static import extract
    from schedmate.base.errors import SchedmateError

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        if command is not None:
            extract(Path(root), command, budget_s=BUDGET_S)
        elif config is not None and config.endswith(".gin"):
            parse_gin(Path(root) / config, Path(root))
        elif config is not None:
            resolve_interpolations(read_config(Path(root) / config, Path(root)))
    except SchedmateError as error:
        print(error)
