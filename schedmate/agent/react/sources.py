"""Reads a job's files for what can prove a value: their tokens, which files take part, and dead
lines.

Comments, docstrings and prose are left out of the tokens: a value that occurs only there has no
effect. A file belongs to the job if its name occurs, as code, in the command or in a file that
does; nothing is run and no import is resolved as Python would. That is generous on purpose: it only
has to separate the job's own files from unrelated ones. Lines are judged dead from names alone and
conservatively: after a statement that ends its block, under a condition that is never true, in a
function whose name is used nowhere, or as a constant whose name is used nowhere else.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from schedmate.agent.syntax import parse_or_none
from schedmate.base.data import load
from schedmate.base.files import walk
from schedmate.tools import RepoFiles


class Sources:
    """The contents of a repository's files, cached for one job."""

    def __init__(self, files: RepoFiles) -> None:
        self._files = files
        self._tokens: dict[str, dict[int, list[str]] | None] = {}
        self._trees: dict[str, ast.Module] = {}

    def tokens(self, path: str) -> dict[int, list[str]] | None:
        """The names, numbers and strings of each line of a file; None if it may not be read."""
        if path not in self._tokens:
            lines = self._files.lines(path)
            tree = self.tree(path) if lines is not None else None
            self._tokens[path] = None if lines is None else tokens_by_line(path, lines, tree)
        return self._tokens[path]

    def lines(self, path: str) -> list[str]:
        """The lines of a file as a model is shown them; none if it may not be read."""
        return self._files.lines(path) or []

    def tree(self, path: str) -> ast.Module:
        """A file's syntax tree, empty if it has none."""
        if path not in self._trees:
            lines = self.lines(path)
            tree = syntax_tree(lines) if _is_code(path, lines) else None
            self._trees[path] = tree or ast.Module([], [])
        return self._trees[path]


# The values on a line of code or configuration, without comments and prose.


CODE_SUFFIXES = frozenset({".py"})
CONFIG_SUFFIXES = frozenset(
    {
        *(".yaml", ".yml", ".json", ".jsonc", ".jsonnet", ".libsonnet", ".toml", ".gin"),
        *(".ini", ".cfg", ".conf", ".config", ".args"),
    }
)
SCRIPT_SUFFIXES = frozenset(
    {
        *(".sh", ".bash", ".zsh", ".ksh", ".mk", ".just", ".dockerfile", ".containerfile"),
        *(".sbatch", ".slurm", ".job", ".pbs", ".qsub", ".lsf", ".bsub", ".sge", ".sub"),
    }
)
READABLE_SUFFIXES = CODE_SUFFIXES | CONFIG_SUFFIXES | SCRIPT_SUFFIXES
SCRIPT_NAMES = re.compile(r"(gnu)?makefile|justfile|(docker|container)file(\.\w+)?", re.IGNORECASE)
"""Names of files of commands, whatever their suffix."""
PROSE_WORDS = 4
"""A string of more words is a sentence, which contains no values of the program."""

_NO_TOKENS = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_SPEAKING = frozenset(
    {"print", "log", "debug", "info", "warning", "warn", "error", "exception", "critical", "write"}
)
_FOR_PEOPLE = frozenset({"help", "description", "epilog", "usage", "title", "msg", "message"})
_TRIPLE = re.compile(r"\"\"\"|'''")
_BLOCK = re.compile(r"(?::|^\s*-|-)\s+[|>][+-]?\d?\s*(?:#.*)?$")
_EMPTY = re.compile(r"\[\s*\]|\{\s*\}")
_OPTIONS = re.compile(r"\s*--?[A-Za-z][\w-]*[ =]\S")
_DEFAULT = re.compile(r"(\$\{\w+):?[-=]")
_COMMANDS = re.compile(
    r"(?:^|[;&|(]|\s--\s)\s*+(?:(?:exec|env|time|nohup|sudo|\w++=\S*+)\s++)*+"
    r"(?:[^\s;&|(/]*+/)*+([A-Za-z][\w.+-]*+)\s"
)
_INTERPRETER = re.compile(r"python[\d.]*|pypy[\d.]*|(ba|z|da|k)?sh|source")
_ARGUMENT = re.compile(r"\s-{1,2}[A-Za-z]|\S\.(?:py|sh)\b|\s[\w.+-]+=\S")
_PRINTED = re.compile(r"\s*(?:cat|:)\s+<<-?\s*['\"\\]?(\w+)['\"]?\s*$")
_ECHO = re.compile(r"\s*(?:echo|printf)\s")
_KEY = re.compile(r"(?<![^\s,:=\[\]{}()\"'<>|&;$`])([^\s,:=\[\]{}()\"'<>|&;$`]++)[\"']?\s*+[:=]")
_YAML_KEY = re.compile(r"(\s*(?:-\s+)*)[\"']?([\w./-]++)[\"']?\s*+:(?:\s|$)")
_COMMENT = re.compile(r"(^|\s)(#|//|;\s).*$")
_BARE = re.compile(r"[^\s,:=\[\]{}()\"'<>|&;$`]+")


def is_readable(path: str) -> bool:
    """Whether a file of that name can be run by a job or configure it."""
    name = PurePosixPath(path)
    known = name.suffix.lower() in READABLE_SUFFIXES
    return known or SCRIPT_NAMES.fullmatch(name.name) is not None


def is_script(path: str, lines: Sequence[str]) -> bool:
    """Whether a file is one of commands by its name or, without a suffix, by its first line."""
    name = PurePosixPath(path)
    if name.suffix.lower() in SCRIPT_SUFFIXES or SCRIPT_NAMES.fullmatch(name.name) is not None:
        return True
    return not name.suffix and bool(lines) and lines[0].startswith("#!")


def _is_code(path: str, lines: Sequence[str] = ()) -> bool:
    name = PurePosixPath(path)
    if not name.suffix and lines and lines[0].startswith("#!"):
        return "python" in lines[0]
    return name.suffix.lower() in CODE_SUFFIXES


def is_command(text: str) -> bool:
    """Whether a text is a command line: options, or a launcher or interpreter with an argument."""
    if _OPTIONS.match(text) and not _is_prose(text):
        return True
    return _ARGUMENT.search(text) is not None and any(
        name in _launchers() or _INTERPRETER.fullmatch(name) for name in _COMMANDS.findall(text)
    )


@cache
def _launchers() -> frozenset[str]:
    table: dict[str, dict[str, Any] | None] = load("agent/launch/launchers.yaml")["launchers"]
    other = {name for one in table.values() for name in (one or {}).get("names", ())}
    return frozenset(table) | other


def tokens_by_line(
    path: str, lines: list[str], tree: ast.Module | None = None
) -> dict[int, list[str]]:
    """The names, numbers and strings of each line that has any, by 1-based line number.

    `tree` is the file's syntax tree where it is at hand.
    """
    if _is_code(path, lines):
        return _tokens_of_python(lines, syntax_tree(lines) if tree is None else tree)
    return _tokens_of_text(lines, config=PurePosixPath(path).suffix.lower() in CONFIG_SUFFIXES)


def _tokens_of_python(lines: list[str], tree: ast.Module | None) -> dict[int, list[str]]:
    source = _joined_lines(lines)
    hidden = strings_for_people(tree)
    tokens: dict[int, list[str]] = {}
    done, before = 0, ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NAME, tokenize.NUMBER):
                tokens.setdefault(token.start[0], []).append(token.string)
            elif token.type == tokenize.STRING and token.start not in hidden:
                tokens.setdefault(token.start[0], []).extend(_literals_of_string(token.string))
            elif token.type not in _NO_TOKENS and "MIDDLE" in tokenize.tok_name[token.type]:
                # the literal parts of an f-string, from Python 3.12 on
                tokens.setdefault(token.start[0], []).extend(_unless_prose(token.string))
            elif before + token.string in ("[]", "{}"):
                tokens.setdefault(token.start[0], []).append(before + token.string)
            done, before = max(done, token.end[0]), token.string
    except (tokenize.TokenError, SyntaxError):
        # Python 2, or broken: what could be read up to there, then line by line.
        rest = _tokens_of_text(lines, config=False)
        tokens |= {number: values for number, values in rest.items() if number > done}
    return tokens


def syntax_tree(lines: list[str]) -> ast.Module | None:
    """The syntax tree of a program's lines; None if it is Python 2, invalid or too large."""
    return parse_or_none(_joined_lines(lines))


def _joined_lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def strings_for_people(tree: ast.Module | None) -> set[tuple[int, int]]:
    """Positions of strings for people: docstrings, disabled code, help and messages."""
    positions: set[tuple[int, int]] = set()
    for node in ast.walk(tree) if tree is not None else ():
        spoken: list[ast.AST] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            spoken = [node.value]
        elif isinstance(node, ast.Call):
            spoken = [word.value for word in node.keywords if word.arg in _FOR_PEOPLE]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            if (called.id if isinstance(called, ast.Name) else called) in _SPEAKING:
                spoken += node.args
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            spoken = list(node.exc.args)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            spoken = [node.msg]
        positions |= {
            (one.lineno, one.col_offset)
            for one in spoken
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        }
    return positions


def _literals_of_string(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text.lstrip("rRbBuUfF").strip("'\"")
    return _unless_prose(value) if isinstance(value, str) else []


def _unless_prose(value: str) -> list[str]:
    """A text as the one value that it is; the words of a command; nothing of a sentence."""
    if is_command(value):
        return [value, *_BARE.findall(value)]
    if len(value.split()) > PROSE_WORDS or "\n" in value.strip():
        return []
    return [value]


def _tokens_of_text(lines: list[str], *, config: bool) -> dict[int, list[str]]:
    tokens: dict[int, list[str]] = {}
    texts = _lines_inside_texts(lines, config)
    for number, written in enumerate(lines, 1):
        if number in texts or _ECHO.match(written):
            continue
        line = _DEFAULT.sub(r"\1 ", written)  # `${DATASET:-nyc}` is a name and a value
        values = [
            value
            for match in _QUOTED.finditer(line)
            for value in _unless_prose(match[1] if match[1] is not None else match[2])
        ]
        # the shell looks into double quotes
        expanded = [part for value in values if "$" in value for part in _BARE.findall(value)]
        values += [*expanded, *("".join(one.split()) for one in _EMPTY.findall(line))]
        stripped = _COMMENT.sub("", _QUOTED.sub(" ", line))
        bare = _BARE.findall(stripped)
        key, colon, rest = stripped.partition(":") if config else (stripped, "", "")
        # `note: some long sentence` is prose as well, quoted or not.
        if colon and _is_prose(rest):
            bare = _BARE.findall(key)
        values.extend(bare)
        if values:
            tokens[number] = values
    return tokens


def _is_prose(text: str) -> bool:
    """Whether a plain value is a sentence, not a command with its flags or a list."""
    if text.lstrip().startswith(("[", "{")):
        return False
    words = text.split()
    before = ["", *words]
    plain = [
        word
        for word, last in zip(words, before, strict=False)
        if not word.startswith("-") and "=" not in word.strip("=") and not last.startswith("-")
    ]
    return len(plain) > PROSE_WORDS


def _lines_inside_texts(lines: list[str], config: bool) -> set[int]:
    """Numbers of lines inside a text: triple quotes, YAML block scalars, printed here-documents.

    The scripts of a job description (`run: |`) are no texts.
    """
    inside: set[int] = set()
    quote = end = ""
    block = -1  # indentation of the key whose block scalar this is
    runs = False  # whether that block is a script
    keys: list[tuple[int, str]] = []  # those above a line, with their indentation
    for number, line in enumerate(lines, 1):
        if quote:
            inside.add(number)
            quote = "" if quote in line else quote
        elif end:
            inside.add(number)
            end = "" if line.strip() == end else end
        elif block >= 0 and (not line.strip() or len(line) - len(line.lstrip()) > block):
            if not runs:
                inside.add(number)
        else:
            block = -1
            if config and (key := _YAML_KEY.match(line)):
                keys = [one for one in keys if one[0] < len(key[1])] + [(len(key[1]), key[2])]
            opened = _TRIPLE.search(line)
            if opened and line.count(opened[0]) % 2:
                quote = opened[0]
            elif here := _PRINTED.match(line):
                end = here[1]
            elif config and _BLOCK.search(line):
                block = len(line) - len(line.lstrip())
                runs = any(key in _script_keys() for indent, key in keys[-1:])
    return inside


@cache
def _script_keys() -> frozenset[str]:
    """Keys of a job description whose text is run."""
    table: dict[str, Any] = load("agent/launch/jobfiles.yaml")
    return frozenset(key for kind in ("text", "words", "lines") for key in table[kind])


def names_in_file(path: str, lines: list[str]) -> set[str]:
    """The words by which a file names others: its imports, strings and values.

    Names of its own variables do not count: a variable `loss` is no reason to read loss.py.
    """
    tree = syntax_tree(lines) if _is_code(path, lines) else None
    tokens = tokens_by_line(path, lines, tree)
    if PurePosixPath(path).suffix.lower() in CONFIG_SUFFIXES:
        keys = {number: set(_KEY.findall(line)) for number, line in enumerate(lines, 1)}
        return {v for n, values in tokens.items() for v in values if v not in keys[n]}
    if tree is None:
        return {value for values in tokens.values() for value in values}
    hidden, words = strings_for_people(tree), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            words |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            words |= {f"{module}.{alias.name}".strip(".") for alias in node.names}
            words |= {module} - {""}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if (node.lineno, node.col_offset) not in hidden:
                words |= set(_unless_prose(node.value))
    return words


# Which files belong to a job: those that its command leads to, file by file, by name.


MAX_FILES_LISTED = 50_000
MAX_FILES_READ = 800
_LEFT_OUT_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
_PATH_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./\-]*")
_FILE_OF_TOOL = {
    "make": "Makefile",
    "just": "justfile",
    "docker": "Dockerfile",
    "podman": "Containerfile",
}
"""Files that a program reads without being told their names."""


def files_of_job(files: RepoFiles, command: str, start: Iterable[str]) -> set[str]:
    """Repository-relative paths of the job's files.

    `start` are known ones: the entry point, and those that static analysis took values from.
    """
    listed, bare = _list_files(files.root)
    by_stem: dict[str, list[str]] = {}
    for path in listed:
        by_stem.setdefault(_module_stem(path), []).append(path)
    words = _PATH_WORD.findall(command)
    job_files: set[str] = set()
    queue = deque(path for path in start if path in listed or path in bare)
    queue += [*_files_named(words, by_stem), *_scripts_named(words, bare, ".")]
    queue += [path for word in words for path in by_stem.get(_FILE_OF_TOOL.get(word, ""), ())]
    read = 0
    while queue and read < MAX_FILES_READ:
        path = queue.popleft()
        if path in job_files:
            continue
        job_files.add(path)
        lines = files.lines(path)
        if lines is None:
            continue
        read += 1
        named = {word for value in names_in_file(path, lines) for word in _PATH_WORD.findall(value)}
        queue += _files_named(named, by_stem)
        if not _is_code(path, lines):
            queue += _scripts_named(named, bare, str(PurePosixPath(path).parent))
        if path.endswith(".py"):
            package = str(PurePosixPath(path).parent / "__init__.py")
            queue += [package] if package in listed else []
    return job_files | set(queue)


def _list_files(root: Path) -> tuple[set[str], set[str]]:
    """The files that can take part by their names, and those without a suffix."""
    out: set[str] = set()
    bare: set[str] = set()
    for directory, folders, names in walk(root):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _LEFT_OUT_FOLDERS
        )
        for name in sorted(names):
            if (readable := is_readable(name)) or "." not in name:
                (out if readable else bare).add(Path(directory, name).relative_to(root).as_posix())
                if len(out) + len(bare) >= MAX_FILES_LISTED:
                    return out, bare
    return out, bare


def _module_stem(path: str) -> str:
    name = PurePosixPath(path)
    return name.parent.name if name.name == "__init__.py" else name.stem


def _scripts_named(words: Iterable[str], bare: set[str], folder: str) -> list[str]:
    """Files without a suffix, which only their whole path names."""
    paths = (path for word in words for path in (word, f"{folder}/{word}".removeprefix("./")))
    return [path for path in paths if path in bare]


def _files_named(words: Iterable[str], by_stem: dict[str, list[str]]) -> list[str]:
    """Files that a word may name: `train`, `configs/gpt.yaml`, `pkg.data.text`, `pile/gpt`."""
    out = []
    for word in words:
        parts = [part for part in re.split(r"[/.]", word) if part]
        suffixes: frozenset[str] = READABLE_SUFFIXES
        if len(parts) > 1 and "." + parts[-1].lower() in READABLE_SUFFIXES:
            last = "." + parts.pop().lower()
            suffixes = frozenset({".yaml", ".yml"} if last in (".yaml", ".yml") else {last})
        for end in range(len(parts), max(0, len(parts) - 2), -1):
            for path in by_stem.get(parts[end - 1], ()):
                place = PurePosixPath(path)
                if suffixes is not READABLE_SUFFIXES and place.suffix.lower() not in suffixes:
                    continue
                if end < 2 or parts[end - 2] in place.parent.parts:
                    out.append(path)
    return out


# Lines that cannot run or are not used: a value that is only there proves nothing.


_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_ENDING_STATEMENTS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_ENDING_CALLS = frozenset({"exit", "_exit", "quit"})
_DeadSpan = tuple[int, int, str]


class DeadLines:
    """Decides for lines of one job's files whether they can have had an effect.

    `entry` is the program that the command runs; other Python files that it names are settings.
    """

    def __init__(
        self, sources: Sources, taking_part: set[str], command: str, entry: str | None
    ) -> None:
        self._sources = sources
        self._taking_part = taking_part
        self._entry = entry
        self._command = set(_IDENTIFIER.findall(command))
        self._spans: dict[str, list[_DeadSpan]] = {}

    def reason(self, path: str, line: int) -> str | None:
        """The reason why a line proves nothing, or None if it may."""
        if path not in self._spans:
            self._spans[path] = list(self._dead(path))
        return next((why for first, last, why in self._spans[path] if first <= line <= last), None)

    @cached_property
    def _named(self) -> Counter[str]:
        """How often each word occurs in the code of the job's files."""
        occurrences: Counter[str] = Counter(self._command)
        for path in self._taking_part:
            for line in (self._sources.tokens(path) or {}).values():
                occurrences.update(word for token in line for word in _IDENTIFIER.findall(token))
            occurrences.update(self._in_texts(path))
        return occurrences

    def _in_texts(self, path: str) -> Iterator[str]:
        """The names that the expressions within a file's f-strings read."""
        for text in ast.walk(self._sources.tree(path)):
            if isinstance(text, ast.JoinedStr):
                yield from (node.id for node in ast.walk(text) if isinstance(node, ast.Name))

    def _dead(self, path: str) -> Iterator[_DeadSpan]:
        tree = self._sources.tree(path)
        # a configuration in Python, or a program that takes its own names as one
        named = path != self._entry and PurePosixPath(path).stem in self._command
        settings = named or _reads_names(tree)
        fields = {
            id(one) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for one in cls.body
        }
        for node in ast.walk(tree):
            yield from _never_run(node)
            if settings or id(node) in fields:
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node in tree.body:
                if not node.decorator_list and self._named[node.name] <= 1:
                    why = f"nothing calls the function {node.name}"
                    yield node.lineno, node.end_lineno or node.lineno, why
            elif name := _assigned_constant(node):
                if self._named[name] <= 1:
                    assert isinstance(node, ast.stmt)
                    yield node.lineno, node.end_lineno or node.lineno, f"nothing reads {name}"


def _reads_names(tree: ast.Module) -> bool:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return not names.isdisjoint(("globals", "locals", "vars", "exec"))


def _assigned_constant(node: ast.AST) -> str | None:
    """The single plain name that a statement outside of classes assigns; None for others."""
    # with an annotation it may be the field of a record, which its library reads
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    plain = isinstance(node.value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.UnaryOp)
    return target.id if isinstance(target, ast.Name) and plain else None


def _never_run(node: ast.AST) -> Iterator[_DeadSpan]:
    for body in ("body", "orelse", "finalbody"):
        statements = getattr(node, body, None)
        if isinstance(statements, list):
            yield from _after_the_end(statements)
    if isinstance(node, ast.If | ast.While):
        truth = _constant_truth(node.test)
        if truth is False:
            yield from _spans_of(node.body, "its condition is never true")
        elif truth is True and isinstance(node, ast.If):
            yield from _spans_of(node.orelse, "the condition before it is always true")


def _after_the_end(statements: Sequence[ast.stmt]) -> Iterator[_DeadSpan]:
    for at, statement in enumerate(statements[:-1]):
        if isinstance(statement, _ENDING_STATEMENTS) or _ends_the_program(statement):
            yield from _spans_of(statements[at + 1 :], f"line {statement.lineno} ends before it")
            return


def _ends_the_program(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return (name.id if isinstance(name, ast.Name) else name) in _ENDING_CALLS


def _spans_of(statements: Sequence[ast.stmt], why: str) -> Iterator[_DeadSpan]:
    for statement in statements:
        yield statement.lineno, statement.end_lineno or statement.lineno, f"it never runs: {why}"


def _constant_truth(test: ast.expr) -> bool | None:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return False if name == "TYPE_CHECKING" else None
