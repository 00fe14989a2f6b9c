"""Hostile repositories and logs, by class, made up anew from a seed."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "repos"
LOG = (ROOT / "schedmate" / "sample" / "job.out").read_bytes()

TRAINING = """
import torch, torchvision, argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=90)
args = parser.parse_args()
{attack}
model = torchvision.models.resnet18()
for epoch in range(args.epochs):
    pass
"""


@dataclass
class Case:
    """One hostile input: `files` of a repository with a launch `command`, or a `log`."""

    files: dict[str, bytes] = field(default_factory=dict)
    command: str | None = "python train.py --epochs 3"
    log: bytes | None = None
    log_name: str = "job.out"
    special: str = ""

    def write(self, folder: Path) -> Path:
        """Put it on disk; gives the repository or the log."""
        if self.log is not None:
            path = folder / self.log_name
            path.write_bytes(self.log)
            return path
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if self.special == "links":
            (folder / "loop").symlink_to(folder)
            (folder / "self").symlink_to(folder / "self")
            (folder / "out").symlink_to("/")
        elif self.special == "pipe":
            os.mkfifo(folder / "config.yaml")
        elif self.special == "sparse":
            with (folder / "config.yaml").open("wb") as file:
                file.truncate(10 << 30)
        elif self.special == "names":
            for number in range(300):
                (folder / os.fsdecode(bytes([0xFF, 0x80 + number % 100, 65]) + b"x" * 200)).touch()
        elif self.special == "deep":
            place = folder
            for number in range(200):
                place = place / f"d{number}"
            place.mkdir(parents=True)
        return folder


def _python(attack: str) -> Case:
    return Case({"train.py": TRAINING.format(attack=attack).encode()})


def _size(rng: random.Random, low: float = 3, high: float = 9) -> int:
    return int(10 ** rng.uniform(low, high))


def aliasing(rng: random.Random) -> Case:
    """Values that hold themselves many times, and what goes through them."""
    grow = rng.choice(
        ["x = [x, x]", "x = (x, x)", "x = {'a': x, 'b': x}", "x = x + x", "x = {**x, 'k': dict(x)}"]
    )
    start = "x = {'z': 1}" if "**" in grow else rng.choice(["x = ['a']", "x = 'ab'", "x = (1,)"])
    use = rng.choice(
        [
            "str(x)",
            "x == x",
            "repr(x)",
            "hash(x)",
            "{str(x): 1}",
            "f'{x}'",
            "'%s' % (x,)",
            "list(x)",
            "sorted(x)",
            "len(str(x))",
            "import copy; y = copy.deepcopy(x)",
            "import json; y = json.dumps(x)",
            "import functools; y = functools.reduce(lambda a, b: a + b, x)",
            "parser.set_defaults(model=x)",
            "torchvision.models.resnet18(x)",
        ]
    )
    return _python(f"{start}\nfor i in range({rng.randint(10, 200)}):\n    {grow}\n{use}")


def widths(rng: random.Random) -> Case:
    """Results far larger than what they are made of."""
    n = _size(rng, 5, 11)
    return _python(
        "y = "
        + rng.choice(
            [
                f"'{{:{{}}}}'.format('a', {n})",
                f"f'{{1:{n}}}'",
                f"'%{n}d' % 1",
                f"'%*d' % ({n}, 1)",
                f"'a'.ljust({n})",
                f"'a'.zfill({n})",
                f"'a'.center({n})",
                f"'\\t'.expandtabs({n})",
                f"'a' * {n}",
                f"[0] * {n}",
                f"b'a' * {n}",
                f"bytes({n})",
                f"bytearray({n})",
                f"list(range({n}))",
                f"'x'.join('a' for _ in range({n}))",
                f"('a' * 10000).replace('a', 'b' * {min(n, 10**7)})",
                f"2 ** {n}",
                f"1 << {n}",
                f"10 ** 10 ** {rng.randint(1, 12)}",
                f"round(1.5, {n})",
                f"format(1.0, '.{n}f')",
                f"str(10 ** {min(n, 10**7)})",
                f"int('9' * {min(n, 10**7)})",
                f"list(__import__('itertools').product(range({n}), repeat=9))",
                f"'a b ' * {min(n, 10**6)}).split(' '",
            ]
        ).replace(").split(' '", "")
    )


def patterns(rng: random.Random) -> Case:
    """Regular expressions of the repository's own."""
    atom = rng.choice(["a", "[a-z]", ".", r"\w", "(a|a)", "(a|b|ab)", "(?x: (a+) +)"])
    body = "".join(
        rng.choice([f"({atom}+)+", f"({atom}*)*", f"({atom}|{atom}?)+", f"{atom}*" * 6])
        for _ in range(rng.randint(1, 3))
    )
    flags = rng.choice(["", "(?i)", "(?x)", "(?s)", "(?u)"])
    subject = f"'a' * {rng.choice([30, 40, 400, 40_000])} + '!'"
    call = rng.choice(["match", "search", "fullmatch", "findall", "split", "compile"])
    if call == "compile":
        return _python(f"import re\ny = re.compile(r'{flags}{body}b').match({subject})")
    return _python(f"import re\ny = re.{call}(r'{flags}{body}b', {subject})")


def literals(rng: random.Random) -> Case:
    """Source text that is expensive to parse or to keep."""
    n = _size(rng, 3, 6.5)
    return _python(
        rng.choice(
            [
                "x = " + "[" * n + "]" * n,
                "x = " + "(" * min(n, 5000) + "1" + ")" * min(n, 5000),
                "x = " + "-" * n + "1",
                "x = " + "1" * n,
                "x = 0x" + "f" * n,
                "x = '" + "a" * n + "'",
                "x = [" + "1," * n + "]",
                "x = {" + ",".join(f"{i}:{i}" for i in range(min(n, 200_000))) + "}",
                "x = " + "+".join("a" for _ in range(n)),
                "x = a" + ".b" * n,
                "x = a" + "[0]" * n,
                "if x:\n" + "".join(" " * i + "if x:\n" for i in range(1, 90)) + " " * 90 + "pass",
                "x = " + "lambda: " * min(n, 3000) + "1",
                "x = f'" + "{x}" * n + "'",
                "\n".join(f"x{i} = {i}" for i in range(min(n, 100_000))),
            ]
        )
    )


def endless(rng: random.Random) -> Case:
    """Programs that never end, or call themselves."""
    return _python(
        rng.choice(
            [
                "while True: x = 1",
                f"for i in range({_size(rng, 6, 12)}): x = i * i",
                "def f(n): return f(n + 1)\nf(0)",
                "def f(n): return f(n - 1) + f(n - 2)\nf(90)",
                "def f(*a): return [f(*a, *a) for _ in a]\nf(1, 2)",
                "x = [1]\nfor i in x: x.append(i)",
                "import itertools\nfor i in itertools.count(): y = [i] * i",
                "x = {}\nwhile True: x[len(x)] = str(x)",
                "class A:\n    def __getattr__(self, n): return getattr(self, n + n)\nA().a",
                "s = 'a b'\nwhile True:\n    s = ' '.join(s.split() + s.split())",
                "g = (x for x in g2)\ng2 = (x for x in g)\nlist(g)",
            ]
        )
    )


def codecs(rng: random.Random) -> Case:
    """Encodings, some of which take quadratic time."""
    name = rng.choice(
        ["punycode", "idna", "zlib", "bz2", "utf-7", "unicode_escape", "rot13", "hex", "uu"]
    )
    n = _size(rng, 4, 7)
    return _python(f"x = ('ü' * {n}).encode('{name}')\ny = (b'a-' * {n}).decode('{name}')")


def configurations(rng: random.Random) -> Case:
    """Configuration files and what lies beside the code, as bombs for their parsers."""
    n = _size(rng, 3, 6.3)
    tag = "".join(f"%TAG !{i}! tag:x,{i}:\n" for i in range(min(n, 60_000)))
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, rng.randint(5, 60))
    )
    name, text = rng.choice(
        [
            ("config.yaml", tag + "---\nepochs: 3\n"),
            ("config.yaml", bomb),
            ("config.yaml", "[" * n),
            ("config.yaml", "a: " * n),
            ("config.yaml", "? " * n),
            ("config.yaml", "- " * min(n, 20_000) + "x"),
            ("config.yaml", "a: !!python/object/apply:os.system ['true']\n"),
            ("config.json", "[" * n),
            ("config.json", '{"a":' * min(n, 100_000)),
            ("config.json", '{"epochs": ' + "9" * n + "}"),
            ("config.toml", "a = " + "[" * n),
            ("config.toml", "a = " + "9" * n),
            ("config.toml", "a" + ".a" * min(n, 100_000) + " = 1"),
            ("pyproject.toml", "[project]\nname = '" + "\\" * n),
            ("pyproject.toml", "[[a]]\n" * min(n, 200_000)),
            ("setup.cfg", "[metadata]\n" + "a" + " " * n + "b\n"),
            ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n" + " x = y:z\n" * n),
            ("config.ini", "[a]\n" + " " * n + "x"),
            (".git/config", '[remote "origin"]\n' + " " * n + "\n" + "\turl" + " " * n),
            ("requirements.txt", "a" + "[" * n),
            ("Makefile", "train:\n\tpython train.py " + "$(" * min(n, 50_000)),
            ("config.jsonnet", "local f(x) = f(x + 1); f(0)"),
            ("config.jsonnet", "{a: " * min(n, 5_000)),
            ("config.conf", "a = ${b}\nb = ${a}\n" + "a.b." * min(n, 50_000) + "c = 1"),
            ("train.ipynb", '{"cells": ' + "[" * min(n, 100_000)),
        ]
    )
    command = rng.choice(
        ["python train.py --config " + name, "python train.py", "make train", "train"]
    )
    base = TRAINING.format(
        attack="import yaml, json, tomllib\nconfig = yaml.safe_load(open('config.yaml'))"
    )
    return Case({"train.py": base.encode(), name: text.encode()}, command)


def shells(rng: random.Random) -> Case:
    """Launch scripts and commands that expand without end."""
    n = _size(rng, 3, 9)
    text = rng.choice(
        [
            f"for i in {{1..{n}}}; do python train.py --epochs $i; done",
            f"for i in $(seq 1 {n}); do python train.py --epochs $i; done",
            "while true; do python train.py; done",
            "f() { f; f; }; f; python train.py",
            "source run.sh; python train.py",
            "x=a; " + "x=$x$x; " * rng.randint(10, 60) + "python train.py --name $x",
            "python train.py " + "{a,b}" * rng.randint(5, 40),
            "python train.py " + "$(echo " * rng.randint(5, 2000),
            "python train.py --epochs $((" + "9" * min(n, 10**6) + "**9))",
            f"python train.py --epochs $((2**{n}))",
            "python train.py ${x//" + "*a" * rng.randint(5, 200) + "/b}",
            "[[ " + "a" * 5000 + " =~ (a+)+b ]] && python train.py",
            "case " + "a" * 5000 + " in " + "*a" * 50 + "b) ;; esac; python train.py",
            "python train.py '" + "a" * min(n, 10**6),
            "cat <<EOF\n" * rng.randint(5, 3000) + "python train.py",
            "(" * min(n, 100_000) + "python train.py",
            "python " + "a/" * rng.randint(1000, 5000) + "train.py",
            'eval "$(cat run.sh)"; python train.py',
        ]
    )
    command = text if rng.random() < 0.5 else "bash run.sh"
    return Case({"train.py": TRAINING.format(attack="").encode(), "run.sh": text.encode()}, command)


def folders(rng: random.Random) -> Case:
    """Links, pipes, names, depths and numbers of files."""
    case = _python("import yaml\nconfig = yaml.safe_load(open('config.yaml'))")
    case.special = rng.choice(["links", "pipe", "sparse", "names", "deep", "many"])
    if case.special == "many":
        for number in range(2000):
            case.files[f"pkg{number % 50}/m{number}.py"] = b"from pkg0 import *\n"
        case.files["train.py"] += b"from pkg1.m1 import *\n"
    if rng.random() < 0.5:
        case.command = None
    return case


def mutated_repositories(rng: random.Random) -> Case:
    """Ordinary small repositories with some of their bytes changed."""
    repo = rng.choice(sorted(path for path in FIXTURES.glob("*/*") if path.is_dir()))
    case = Case(command=None)
    for path in sorted(repo.rglob("*")):
        if path.is_file() and path.stat().st_size < 200_000:
            content = path.read_bytes()
            if rng.random() < 0.6:
                content = _mutated(rng, content)
            case.files[str(path.relative_to(repo))] = content
    expected = repo / "case.yaml"
    if expected.exists():
        found = re.search(r"^command: *(.+)$", expected.read_text(), re.MULTILINE)
        case.command = found[1].strip("'\"") if found else None
    if case.command and rng.random() < 0.3:
        case.command = _mutated(rng, case.command.encode()).decode(errors="surrogateescape")
    return case


def _mutated(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at : at + rng.randint(1, 30)] = b""
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
        elif kind == 2:
            data[at:at] = bytes(data[at : at + rng.randint(1, 40)]) * rng.choice([2, 50, 2000])
        elif kind == 3:
            data[at:at] = rng.choice(
                [b"9" * 5000, b"(" * 3000, b"\x00", b"\xed\xa0\x80", b"{" * 99]
            )
        else:
            other = rng.randrange(len(data) + 1)
            data[at:at] = bytes(data[other : other + 200])
    return bytes(data)


def long_lines(rng: random.Random) -> Case:
    """Logs whose lines are made to keep patterns busy."""
    n = _size(rng, 4, 6.7)
    piece = rng.choice(
        [
            *(b" ", b"\t ", b"a", b"1", b"1.", b"0:", b"[", b"epoch ", b"step 1/", b"Traceback "),
            *(b"loss: ", b"rank0: ", b"=" * 3, b"\x1b[31m", b"\r", b"it/s ", b"12:00:00 ", b"/a"),
            *(b'File "', b"Error: ", b"NCCL ", b"\xe2\x96\x88", b"a=1 ", b"| ", b"node1,", b"((a"),
        ]
    )
    line = rng.choice([b"", b"Traceback (most recent call last):\n", b"Epoch 1: "])
    return Case(log=LOG + line + piece * (n // len(piece)) + b"!\n" + LOG)


def packed(rng: random.Random) -> Case:
    """Packed logs that become far larger than they are."""
    piece = rng.choice([b"\0", b"a\n", LOG])
    # made small enough not to hold up the threads beside it, which are timed
    once = gzip.compress(piece * (_size(rng, 3, 7.5) // len(piece)), 9)
    return Case(log=once * rng.randint(1, 20), log_name="job.out.gz")


def mutated_logs(rng: random.Random) -> Case:
    """An ordinary log with some of its bytes changed."""
    log = LOG * rng.randint(1, 4)
    for _ in range(rng.randint(1, 6)):
        log = _mutated(rng, log)
    return Case(log=log)


REPOSITORIES: tuple[Callable[[random.Random], Case], ...] = (
    *(aliasing, widths, patterns, literals, endless, codecs, configurations, shells, folders),
    mutated_repositories,
)
LOGS: tuple[Callable[[random.Random], Case], ...] = (long_lines, packed, mutated_logs)
