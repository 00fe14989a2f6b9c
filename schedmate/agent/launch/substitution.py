"""Command substitutions whose output follows from the script alone. Nothing is run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from schedmate.agent.launch import tree
from schedmate.agent.launch.builtins import BUILTINS, Invocation
from schedmate.agent.launch.following import Shell
from schedmate.agent.launch.parser import parse_script
from schedmate.agent.launch.state import Piece, Text, joined, plain
from schedmate.agent.launch.words import Substitution
from schedmate.agent.regex import for_text

MAX_SEQUENCE = 1_000
MAX_TEXT = 10_000
"""Longest text that `sed` is applied to."""
MAX_REPLACEMENT = 200


def evaluate(shell: Shell, part: Substitution) -> Text | None:
    """What a substitution prints, or None where that depends on the machine or on time."""
    if part.raw.startswith(("<", ">")):
        return None
    output = _block(shell, parse_script(part.text, part.line))
    if output is None:
        return None
    trimmed = list(output)
    while trimmed and not trimmed[-1].text.strip("\n"):
        trimmed.pop()
    return tuple(trimmed)


def _block(shell: Shell, nodes: Sequence[tree.Node]) -> Text | None:
    output: Text = ()
    for node in nodes:
        shell.follower.tick()
        printed = _node(shell, node)
        if printed is None:
            return None
        output += printed
    return output


def _node(shell: Shell, node: tree.Node) -> Text | None:
    match node:
        case tree.AndOr() if all(operator == "&&" for operator, _ in node.items):
            return _chain(shell, [item for _, item in node.items])
        case tree.AndOr():  # `command || fallback`
            return _node(shell, node.items[0][1]) if len(node.items) == 2 else None
        case tree.Group():
            return _block(shell, node.body)
        case tree.Pipeline() if not node.negated:
            return _pipeline(shell, node.commands)
        case tree.Simple():
            return _simple(shell, node)
        case _:
            return None


def _chain(shell: Shell, nodes: Sequence[tree.Node]) -> Text | None:
    """`a && b`, where a test may decide that nothing more is printed."""
    output: Text = ()
    for node in nodes:
        simple = isinstance(node, tree.Simple) and node.words
        name = node.words[0].bare if isinstance(node, tree.Simple) and simple else None
        if isinstance(node, tree.Condition) or name in ("[", "test"):
            decision = shell.node(node)
            if decision is None:
                return None
            if not decision:
                return output
            continue
        printed = _node(shell, node)
        if printed is None:
            return None
        output += printed
    return output


def _simple(shell: Shell, node: tree.Simple) -> Text | None:
    words = [text for word in node.words for text in shell.expander.fields(word)]
    if not words:
        for assignment in node.assignments:
            shell.assign(assignment)
        return ()
    name, arguments = posixpath.basename(joined(words[0])), words[1:]
    origin = shell.state.origin(node.line)
    if name in ("cd", "pushd", "export", "set", "true", ":"):
        BUILTINS[name](Invocation(shell, arguments, node))
        return ()
    if name == "pwd":
        return (Piece(shell.follower.absolute(shell.state.cwd), origin),)
    if name == "eval":
        return _block(shell, parse_script(" ".join(map(joined, arguments)), node.line))
    if name == "cat" and not arguments and node.heredoc is not None:
        return shell.expander.heredoc(node.heredoc)
    if name == "echo":
        while arguments and re.fullmatch(r"-[neE]+", joined(arguments[0])):
            arguments = arguments[1:]
        spaced: Text = ()
        for number, text in enumerate(arguments):
            spaced += ((Piece(" ", origin),) if number else ()) + text
        return spaced
    table = shell.follower.rules.launchers.get(name)
    if table is not None and table.run == "shell":  # `job=$(sbatch --parsable train.sh)`
        shell.command(words, {}, node.line, node)
        return None
    plains = [plain(text) for text in arguments]
    known = [text for text in plains if text is not None]
    if len(known) < len(plains):
        return None
    printed = _known(shell, name, known)
    return None if printed is None else (Piece(printed, origin),)


def _known(shell: Shell, name: str, arguments: list[str]) -> str | None:
    paths = [argument for argument in arguments if not argument.startswith("-")]
    if name == "dirname" and paths:
        return posixpath.dirname(paths[0].rstrip("/")) or ("/" if paths[0][:1] == "/" else ".")
    if name == "basename" and paths:
        base = posixpath.basename(paths[0].rstrip("/"))
        suffix = arguments[1] if arguments[0] == "-s" else paths[1] if len(paths) > 1 else ""
        base = posixpath.basename(paths[-1]) if arguments[0] == "-s" else base
        return base.removesuffix(suffix) if suffix != base else base
    if name in ("realpath", "readlink") and paths:
        absolute = shell.follower.absolute(shell.state.cwd)
        return posixpath.normpath(posixpath.join(absolute, paths[0]))
    if name in ("which", "command", "type") and paths:
        return paths[-1] if "/" in paths[-1] else f"/usr/bin/{paths[-1]}"
    if name == "printf" and len(arguments) == 2 and arguments[0] in ("%s", "%s\\n", "%d"):
        return arguments[1]
    if name == "expr":
        value = shell.expander.arithmetic(" ".join(arguments), 1)
        return None if value is None else str(value)
    if name == "seq":
        return _sequence(arguments)
    if name == "git" and arguments == ["rev-parse", "--show-toplevel"]:
        return shell.follower.absolute(".")
    return None


def _sequence(arguments: list[str]) -> str | None:
    """`seq LAST`, `seq FIRST LAST`, `seq FIRST STEP LAST` over integers."""
    if not 1 <= len(arguments) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", a) for a in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return None
    end = numbers[-1] + (1 if step > 0 else -1)
    return "\n".join(str(number) for number in range(first, end, step)[:MAX_SEQUENCE])


def _pipeline(shell: Shell, commands: Sequence[tree.Node]) -> Text | None:
    """A known text through simple filters, or a count of this node's GPUs."""
    filters: list[list[str]] = []
    for command in commands[1:]:
        if not isinstance(command, tree.Simple):
            return None
        words = [plain(text) for word in command.words for text in shell.expander.fields(word)]
        known = [word for word in words if word is not None]
        if len(known) < len(words) or not known:
            return None
        filters.append(known)
    first = commands[0]
    if isinstance(first, tree.Simple) and first.words:
        origin = shell.state.origin(first.line)
        if joined(shell.expander.text(first.words[0])) == "nvidia-smi":
            count = shell.follower.gpus_per_node(shell.state)
            counted = filters and filters[-1] in (["wc", "-l"], ["grep", "-c", "GPU"])
            return (Piece(str(count), origin),) if count is not None and counted else None
    output = _node(shell, first)
    text = None if output is None else plain(output)
    if output is None or text is None:
        return None
    text += "\n"
    for filter_words in filters:
        filtered = _filter(text, filter_words)
        if filtered is None:
            return None
        text = filtered
    return (Piece(text.rstrip("\n"), shell.state.origin(tree.line_of(first))),)


def _filter(text: str, words: list[str]) -> str | None:
    """One of the filters by which scripts count or pick items of a list."""
    match words:
        case ["wc", "-l"]:
            return str(text.count("\n"))
        case ["wc", "-w"]:
            return str(len(text.split()))
        case ["wc", "-c"]:
            return str(len(text))
        case ["tr", "-cd" | "-dc", wanted]:
            return "".join(char for char in text if char in wanted)
        case ["tr", "-d", dropped]:
            return "".join(char for char in text if char not in dropped)
        case ["tr", old, new] if len(old) == 1 and new in ("\\n", "\n", " "):
            return text.replace(old, "\n" if new == "\\n" else new)
        case ["awk", *options, program] if re.fullmatch(r"(-F\W)?", "".join(options)):
            return _awk(text, "".join(options)[2:] or None, program)
        case ["sed", *options, program] if all(re.fullmatch(r"-[Erne]", o) for o in options):
            return _sed(text, program, bool({"-E", "-r"} & {*options}))
        case ["cut", *options] if cut := re.fullmatch(
            r"(?:-d|--delimiter)(.)-f(\d)", "".join(options)
        ):
            return _item(text.rstrip("\n").split(cut[1]), int(cut[2]))
        case ["head", "-n1" | "-1"] | ["head", "-n", "1"]:
            return text.partition("\n")[0]
        case ["tail", "-n1" | "-1"] | ["tail", "-n", "1"]:
            return text.rstrip("\n").rpartition("\n")[2]
        case ["xargs"]:
            return " ".join(text.split())
        case _:
            return None


def _awk(text: str, separator: str | None, program: str) -> str | None:
    """`{print NF}` and `{print $2}` of one line."""
    fields = text.rstrip("\n").split(separator)
    statement = re.sub(r"\s", "", program)
    if statement == "{printNF}":
        return str(len(fields))
    which = re.fullmatch(r"\{print\$(NF|\d)\}", statement)
    if which is None or "\n" in text.rstrip("\n"):
        return None
    return _item(fields, len(fields) if which[1] == "NF" else int(which[1]))


def _sed(text: str, program: str, extended: bool) -> str | None:
    """`s/pattern/text/` where the pattern means the same to sed and to Python."""
    command = re.fullmatch(r"s(\W)((?:(?!\1).)*)\1((?:(?!\1).)*)\1(g?)", program)
    if (
        command is None
        or re.search(r"[+?|(){}&]|\\[^./\[\]$^*-]", command[2] + command[3])
        or extended
    ):
        return None
    new, count = command[3].replace("\\", ""), 0 if command[4] else 1
    changed: list[str] = []
    for line in text.split("\n"):
        pattern = for_text(command[2], line, every=True)
        if pattern is None or len(new) > MAX_REPLACEMENT or len(text) > MAX_TEXT:
            return None
        changed.append(pattern.sub(new, line, count))
    return "\n".join(changed)


def _item(items: list[str], number: int) -> str:
    return items[number - 1] if 1 <= number <= len(items) else ""
