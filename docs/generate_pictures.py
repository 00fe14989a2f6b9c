"""Record the pictures of README.md and docs/: a terminal session as SVG, reports as PNG.

    python docs/generate_pictures.py [--check]

The session is run on a pseudo-terminal in what `make demo` leaves; the SVG shows each command, and
its output after the time that it took. One is for phones, with fewer columns. The reports are those
that the commands write, and the dashboard is that of a service which was sent the demonstration's
jobs, in Chromium. With --check, only compare the text of the wide SVG with what is printed now.
"""

from __future__ import annotations

import fcntl
import html
import io
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from generate_samples import ROOT, comparable, demo, environment
from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

IMAGES = ROOT / "docs" / "images"
TERMINALS = {"terminal.svg": 100, "terminal-phone.svg": 52}
"""Recordings of the session, and their columns."""
ANALYZE = r"""schedmate analyze demo/train_repo \
    --command "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60" """
SESSION = (
    ANALYZE.rstrip() + " | head -n 3",
    "schedmate track demo/running.log",
    "schedmate diagnose demo/failed.log | head -n 4",
)
SIMULATE = "schedmate simulate demo/trace.csv --policy fifo,sjf,tiresias --cluster 4x8 --out runs"
REPORTS = {
    "triage.png": "schedmate triage demo/jobs.csv --out report.html",
    "simulation.png": f"{SIMULATE} && cp runs/report.html report.html",
    "track.png": "schedmate track demo/running.log --html report.html",
    "fleet.png": "schedmate fleet diagnose examples/gallery/fleet.json -o report.html",
}
SIZE = 1200, 860
TYPED_S, PAUSE_S = 0.6, 0.9
THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
    [
        *((110, 118, 129), (255, 161, 152), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (240, 246, 252)),
    ],
)


@dataclass(frozen=True)
class Shown:
    """Lines that appear together, at `at_s` [s] from the beginning."""

    text: Text
    at_s: float


def on_terminal(command: str, folder: Path, width: int) -> tuple[str, float]:
    """What a command prints on a terminal of so many columns, and its wall time [s]."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = environment(folder / "home") | {"TERM": "xterm-256color", "FORCE_COLOR": "1"}
    env["COLUMNS"] = str(width)
    began = time.monotonic()
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdout=theirs, stderr=subprocess.DEVNULL
    ):
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    return text, time.monotonic() - began


def session(folder: Path, width: int) -> list[Shown]:
    """The whole session, a part for each command and each output."""
    parts, now = [], 0.3
    for command in SESSION:
        typed = Text.assemble(("$ ", "bold green"), (command, "bold"))
        parts.append(Shown(typed, now))
        output, took_s = on_terminal(command, folder, width)
        now += TYPED_S + took_s
        parts.append(Shown(Text.from_ansi(output.rstrip("\n") + "\n"), now))
        now += PAUSE_S
    return parts


def svg(parts: list[Shown], width: int) -> str:
    """The session as an SVG that plays once, and stands still where motion is not wanted."""
    console = Console(
        width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    moments: list[float] = []
    for part in parts:
        lines = part.text.wrap(console, width)
        console.print(*lines, sep="\n", highlight=False)
        moments += [part.at_s] * len(lines)
    drawn = console.export_svg(title="schedmate", theme=THEME, unique_id="schedmate")
    # no fonts from other servers
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    drawn = drawn.replace("<!-- Generated with Rich https://www.textualize.io -->\n", "")
    rules = "".join(
        f'[clip-path="url(#schedmate-line-{number})"]{{animation-delay:{moment:.1f}s}}\n'
        for number, moment in enumerate(moments)
    )
    style = (
        "@keyframes appear{from{visibility:hidden}to{visibility:visible}}\n"
        "@media (prefers-reduced-motion:no-preference){\n"
        ".schedmate-matrix [clip-path]{animation:appear 0s both}\n" + rules + "}\n</style>"
    )
    return drawn.replace("</style>", style, 1)


def text_of(drawn: str) -> str:
    """The text of such an SVG, a line for each line of the terminal."""
    lines: dict[str, str] = {}
    for line, words in re.findall(r'clip-path="url\(#schedmate-(line-\d+)\)">(.*?)</text>', drawn):
        lines[line] = lines.get(line, "") + html.unescape(words).replace("\xa0", " ")
    return "\n".join(line.strip() for line in lines.values() if line.strip())


def photograph(page: str, picture: Path) -> None:
    """A page as Chromium shows it in a window of that size."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("there is no Chromium: `.ci/install browser` installs it on Debian.")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    subprocess.run(
        [chromium, *flags, f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}",
         "--force-device-scale-factor=1", page],
        check=True, capture_output=True,
    )  # fmt: skip
    Image.open(picture).convert("RGB").quantize(256, kmeans=1).save(picture, optimize=True)


def dashboard(folder: Path, picture: Path) -> None:
    """The dashboard of a service that heard of waiting, running and failed jobs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def send(path: str, **body: object) -> None:
        data = None if not body else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address + path, data, headers)  # noqa: S310 - our own
        urllib.request.urlopen(request, timeout=60).close()  # noqa: S310

    command = ["schedmate", "serve", "--port", str(port), "--root", ".", "--state", "state"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder / "home"), stderr=subprocess.DEVNULL
    ) as service:
        try:
            for _ in range(600):
                try:
                    send("/readyz")
                    break
                except OSError:
                    time.sleep(0.1)
            repo, now = str(folder / "demo" / "train_repo"), time.time()
            models = ("resnet50", "resnet18", "vit_small", "resnet50")
            for number, model in enumerate(models):
                job = {"job_id": f"482{number}", "name": f"{model}-cifar10", "user": "ada"}
                job |= {
                    "repo": repo,
                    "command": f"torchrun --nproc_per_node=4 train.py model={model}",
                }
                job |= {"launch": {"gpus": 4}, "submit_time": now - 600 * (number + 1)}
                send("/v1/advise", job=job, record=True)
            log = str(folder / "demo" / "running.log")
            about = {"job_id": "4817", "name": "gpt2-openwebtext", "user": "grace"}
            send("/v1/track", job=about | {"launch": {"gpus": 8}}, log=log, follow=True)
            for number in (6, 24, 36, 48):
                failed = {"job_id": f"47{number:02d}", "user": "alan", "node_names": ["gpu-007"]}
                logs = [str(folder / "demo" / "failed" / f"job-{number:02d}.log")]
                send("/v1/diagnose", job=failed, logs=logs)
            time.sleep(2)
            photograph(address, picture)
        finally:
            service.terminate()


def main() -> None:
    """Write the pictures, or compare the text of the session when called with --check."""
    with tempfile.TemporaryDirectory() as name:
        folder = demo(Path(name))
        for terminal, width in TERMINALS.items():
            drawn, kept = svg(session(folder, width), width), IMAGES / terminal
            if "--check" in sys.argv[1:]:
                if comparable(text_of(drawn)) != comparable(text_of(kept.read_text())):
                    raise SystemExit(f"docs/images/{terminal} is stale: make pictures")
                return
            kept.write_text(drawn)
        env = environment(folder / "home")
        for picture, command in REPORTS.items():
            subprocess.run(["bash", "-c", command], cwd=folder, env=env, check=True)
            photograph((folder / "report.html").as_uri(), IMAGES / picture)
        dashboard(folder, IMAGES / "dashboard.png")


if __name__ == "__main__":
    main()
