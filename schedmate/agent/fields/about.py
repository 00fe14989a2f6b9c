"""What a repository says of itself: the heading and first lines of the README next to the program.

Words only, and only for what the code leaves open; nothing in it is obeyed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from schedmate.base.files import is_file

README = "README"
"""The rule of what only a README says."""
_NAMES = ("README.md", "readme.md", "Readme.md", "README.rst", "README.txt", "README")
_HEADING = re.compile(r"^\s{0,3}#{1,2}\s++(.+)$|<h1[^>]{0,200}>(.+?)</h1>", re.IGNORECASE)
_UNDERLINE = re.compile(r"^(={4,}|-{4,})\s*$")
_MARKUP = re.compile(
    r"!?\[([^\]]{0,300})\]\([^)]{0,300}\)|<[^>]{1,300}>|[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}|:\w{1,60}:"
)
_AFTER_NAME = re.compile("\\s[-\u2013\u2014|]\\s|[:(,]| for | with | in | by | from ")
_ACRONYM = re.compile(r"\(([A-Z][\w-]{0,40}[A-Z0-9][\w-]{0,40})\)")
_BUILT_WITH = re.compile(
    r"([-_.](pytorch|tensorflow|keras|torch|tf2?|jax))+$|^(pytorch|tensorflow|keras|torch|tf2?|jax)[-_]",
    re.IGNORECASE,
)
_LINES = 40
_READ = 100_000
_WIDE = 2000
"""Characters of a line of the README that are read."""


@dataclass(frozen=True, slots=True)
class About:
    """`title` is the README's heading, `line` its line, `text` the words below it; `folder` is the
    repository's name."""

    folder: str
    file: str
    line: int
    title: str
    text: str

    @property
    def name(self) -> str:
        """The name that the heading begins with: `StarGAN - PyTorch` is StarGAN."""
        head = re.split(_AFTER_NAME, self.title)[0].strip(" \"'“”")
        joined = re.sub(r"^(\w+) (\d)$", r"\1\2", head)  # `StyleTTS 2`, if it is called so
        head = joined if joined.lower() in self.folder.lower() else head
        words = [
            word
            for word in head.replace('"', " ").split()
            if not re.fullmatch(
                r"official|the|pytorch|tensorflow|keras|jax|torch|tf2?|code|implementation|"
                r"of|a|an|simple|minimal|unofficial|repository|project|v?\d+(\.\d+)*",
                word,
                re.IGNORECASE,
            )
        ]
        short = _ACRONYM.search(self.title)
        name = words[0] if len(words) == 1 else short[1] if short else ""
        name = _BUILT_WITH.sub("", name)
        first, *rest = name.split("-")
        # more than two words joined are a description, of which the first may be the name
        described = len(rest) > 1
        return name if not described else first if re.search(r"[a-z][A-Z]", first) else ""


def read_readmes(root: Path, entry: str | None) -> list[About]:
    """The READMEs that are about the program: the nearest one first, the repository's own last."""
    readmes: list[About] = []
    folder = (root / entry).parent if entry is not None else root
    while True:
        for name in _NAMES:
            path = folder / name
            if is_file(path) and not path.is_symlink():
                about = _parse(path, root)
                if about is not None:
                    readmes.append(about)
                    break
        if folder == root or root not in folder.parents:
            return readmes
        folder = folder.parent


def _parse(path: Path, root: Path) -> About | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            lines = [line[:_WIDE] for line in stream.read(_READ).splitlines()]
    except OSError:
        return None
    for number, line in enumerate(lines[:_LINES]):
        match = _HEADING.search(line)
        under = number > 0 and bool(_UNDERLINE.match(line)) and lines[number - 1].strip()
        if match or under:
            head = (match[1] or match[2]) if match else lines[number - 1]
            title = _plain(heading_without_marks(head) if match and match[1] else head)
            if title:
                text = _plain(" ".join(lines[number + 1 : number + 1 + _LINES]))
                return About(root.name, str(path.relative_to(root)), number + 1, title, text)
    return None


def heading_without_marks(heading: str) -> str:
    """A heading without the marks that may close it; `#` alone is one of that name."""
    return heading.rstrip().rstrip("#").rstrip() or heading.strip()[:1]


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", _MARKUP.sub(lambda m: m[1] or " ", text)).strip()
