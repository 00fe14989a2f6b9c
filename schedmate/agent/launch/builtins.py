"""The shell builtins that change what a later command sees."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from schedmate.agent.launch import tree
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.control import LeaveSignal
from schedmate.agent.launch.entry import locate
from schedmate.agent.launch.following import MAX_SCRIPTS, Shell
from schedmate.agent.launch.parser import parse_script
from schedmate.agent.launch.splitting import split_fields
from schedmate.agent.launch.state import Piece, Text, joined, plain, to_value


@dataclass(frozen=True, slots=True)
class Invocation:
    """A builtin's shell, its expanded arguments and the command it stands in."""

    shell: Shell
    arguments: list[Text]
    node: tree.Simple


Builtin = Callable[[Invocation], Decision]


def _declare(call: Invocation) -> Decision:
    """`export`, `declare`, `typeset`, `local`, `readonly`: assignments among the words."""
    command = call.node.words[0].bare
    options = [word.bare or "" for word in call.node.words[1:]]
    exports = command == "export" or any(o.startswith("-") and "x" in o for o in options)
    for word in call.node.words[1:]:
        assignment = tree.as_assignment(word)
        if assignment is not None:
            call.shell.assign(assignment)
            names = [assignment.name]
        else:
            names = [joined(text) for text in call.shell.expander.fields(word)]
            names = [name for name in names if not name.startswith("-")]
        if exports:
            call.shell.state.exported.update(names)
    return True


def _unset(call: Invocation) -> Decision:
    for name in map(joined, call.arguments):
        call.shell.state.variables.pop(name, None)
        call.shell.state.exported.discard(name)
    return True


def _set(call: Invocation) -> Decision:
    words = [joined(text) for text in call.arguments]
    if "--" in words or (words and not words[0].startswith(("-", "+"))):
        behind = words.index("--") + 1 if "--" in words else 0
        call.shell.state.positional, call.shell.state.typed = call.arguments[behind:], False
    return True


def _shift(call: Invocation) -> Decision:
    text = plain(call.arguments[0]) if call.arguments else "1"
    count = int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else 1
    enough = count <= len(call.shell.state.positional)
    if enough:
        del call.shell.state.positional[:count]
    return enough


def _cd(call: Invocation) -> Decision:
    targets = [text for text in call.arguments if not joined(text).startswith("-")]
    if targets:
        call.shell.follower.change_directory(call.shell.state, targets[0])
    elif call.node.words[0].bare == "popd" or (call.arguments and joined(call.arguments[0]) == "-"):
        before = call.shell.state.variables.get("OLDPWD")
        if before is not None:
            call.shell.follower.change_directory(call.shell.state, before.items.get("0", ()))
    return True


def _eval(call: Invocation) -> Decision:
    return call.shell.run(parse_script(" ".join(map(joined, call.arguments)), call.node.line))


def _source(call: Invocation) -> Decision:
    """`source file args`: a script of the repository read into the same shell."""
    state, follower = call.shell.state, call.shell.follower
    path = text = None
    if call.arguments and len(follower.scripts) < MAX_SCRIPTS:
        path, _ = locate(follower, to_value(call.arguments[0]), state.cwd, state.file)
        text = follower.repo.read(path) if path else None
    if path is None or text is None:
        return True
    outer = state.file, state.positional
    state.file, state.positional = path, call.arguments[1:] or state.positional
    follower.scripts.append(path)
    try:
        call.shell.run(parse_script(text))
    finally:
        follower.scripts.pop()
        state.file, state.positional = outer
    return True


def _read(call: Invocation) -> Decision:
    """`read`, `mapfile`: from a here-document or -string the text, else unknown."""
    names = [name for name in map(joined, call.arguments) if name.isidentifier()]
    options = "".join(joined(text)[1:] for text in call.arguments if joined(text)[:1] == "-")
    node, expander = call.node, call.shell.expander
    if len(names) == 1 and node.heredoc is not None and ("d" in options or "a" not in options):
        call.shell.state.assign(names[0], expander.heredoc(node.heredoc, names[0]))
        return None
    if names and node.herestring is not None:
        text = expander.text(node.herestring, names[0])
        words = [replace(piece, split=True) for piece in text]
        fields = split_fields(words)
        if "a" in options:
            call.shell.state.assign_array(names[0], [(None, field) for field in fields], False)
            return True
        if len(fields) <= len(names):
            for name, field in zip(names, [*fields, *([()] * len(names))], strict=False):
                call.shell.state.assign(name, field)
            return True
    for name in names:
        piece = Piece(f"${name}", call.shell.state.origin(call.node.line), known=False)
        call.shell.state.assign(name, (piece,))
    return None


def _getopts(call: Invocation) -> Decision:
    """One option of the positional parameters a call, as POSIX getopts takes them."""
    state, origin = call.shell.state, call.shell.state.origin(call.node.line)
    specification = plain(call.arguments[0]) if len(call.arguments) >= 2 else None
    name = joined(call.arguments[1]) if len(call.arguments) >= 2 else ""
    number = plain(state.variables["OPTIND"].items["0"]) if "OPTIND" in state.variables else "1"
    if specification is None or number is None or not re.fullmatch(r"\d{1,9}", number):
        return None
    position = int(number)
    option = plain(state.positional[position - 1]) if position <= len(state.positional) else ""
    if option is None:
        return None
    if len(option) < 2 or option[0] != "-" or option == "--":
        return False
    letter, rest = option[1], option[2:]
    takes_value = letter + ":" in specification
    state.assign(name, (Piece(letter if letter in specification else "?", origin),))
    position += 1
    if takes_value:
        value: Text = (Piece(rest, origin),)
        if not rest and position <= len(state.positional):
            value = state.positional[position - 1]
            position += 1
        state.assign("OPTARG", value)
    state.assign("OPTIND", (Piece(str(position), origin),))
    return True


def _let(call: Invocation) -> Decision:
    status: Decision = True
    for text in call.arguments:
        status = call.shell.arithmetic(joined(text), call.node.line)
    return status


def _leave(level: str) -> Builtin:
    def leave(call: Invocation) -> Decision:
        if level == "exit" and call.shell.follower.ignore_exits:
            return None
        raise LeaveSignal(level, call.node.line)

    return leave


def _always(status: Decision) -> Builtin:
    return lambda _: status


def _command(call: Invocation) -> Decision:
    """`command -v name` looks for a program, `command name args` runs it."""
    options, words = [], list(call.arguments)
    while words and joined(words[0]).startswith("-"):
        options.append(joined(words.pop(0)))
    if any("v" in option.lower() for option in options):
        scripts = call.shell.follower.repo.console_scripts
        return True if words and joined(words[0]) in scripts else None
    return call.shell.command(words, {}, call.node.line, call.node) if words else True


BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _declare),
    **dict.fromkeys(("cd", "pushd", "popd"), _cd),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("read", "mapfile", "readarray"), _read),
    **dict.fromkeys(
        ("true", ":", "trap", "wait", "ulimit", "umask", "shopt", "alias"), _always(True)
    ),
    **{level: _leave(level) for level in ("exit", "return", "break", "continue")},
    "command": _command,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "eval": _eval,
    "getopts": _getopts,
    "let": _let,
    "false": _always(False),
}
