"""Record the pictures of README.md and docs/: a terminal session as SVG, reports as PNG.

    python docs/generate_pictures.py [--check]

The session is run on a pseudo-terminal in what `make demo` leaves; the SVG shows each command, and
its output after the time that it took. The reports are those that the commands write, in Chromium.
With --check, only compare the text of the SVG with what the commands print now.
"""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from generate_samples import ROOT, comparable, demo, environment
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

IMAGES = ROOT / "docs" / "images"
TERMINAL = IMAGES / "terminal.svg"
WIDTH = 100
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


def on_terminal(command: str, folder: Path) -> tuple[str, float]:
    """What a command prints on a terminal of `WIDTH` columns, and its wall time [s]."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    env = environment(folder / "home") | {"TERM": "xterm-256color", "FORCE_COLOR": "1"}
    env["COLUMNS"] = str(WIDTH)
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


def session(folder: Path) -> list[Shown]:
    """The whole session, a part for each command and each output."""
    parts, now = [], 0.3
    for command in SESSION:
        typed = Text.assemble(("$ ", "bold green"), (command, "bold"))
        parts.append(Shown(typed, now))
        output, took_s = on_terminal(command, folder)
        now += TYPED_S + took_s
        parts.append(Shown(Text.from_ansi(output.rstrip("\n") + "\n"), now))
        now += PAUSE_S
    return parts


def svg(parts: list[Shown]) -> str:
    """The session as an SVG that plays once, and stands still where motion is not wanted."""
    console = Console(
        width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    moments: list[float] = []
    for part in parts:
        lines = part.text.wrap(console, WIDTH)
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


def photograph(page: Path, picture: Path) -> None:
    """A page as Chromium shows it in a window of that size."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("there is no Chromium: `.ci/install browser` installs it on Debian.")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    subprocess.run(
        [chromium, *flags, f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}",
         "--force-device-scale-factor=1", page.as_uri()],
        check=True, capture_output=True,
    )  # fmt: skip


def main() -> None:
    """Write the pictures, or compare the text of the session when called with --check."""
    with tempfile.TemporaryDirectory() as name:
        folder = demo(Path(name))
        drawn = svg(session(folder))
        if "--check" in sys.argv[1:]:
            if comparable(text_of(drawn)) != comparable(text_of(TERMINAL.read_text())):
                raise SystemExit("docs/images/terminal.svg is stale: make pictures")
            return
        TERMINAL.write_text(drawn)
        env = environment(folder / "home")
        for picture, command in REPORTS.items():
            subprocess.run(["bash", "-c", command], cwd=folder, env=env, check=True)
            photograph(folder / "report.html", IMAGES / picture)


if __name__ == "__main__":
    main()
