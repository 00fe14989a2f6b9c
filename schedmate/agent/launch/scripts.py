"""Shell text: the typed command, shell and batch scripts, here-documents, text among the words."""

from __future__ import annotations

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.entry import find_file, missing
from schedmate.agent.launch.files import MAX_BYTES
from schedmate.agent.launch.following import MAX_SCRIPTS, Call, Follower, OutOfBudgetError
from schedmate.agent.launch.launchers import Options, Table
from schedmate.agent.launch.resources import from_batch_lines
from schedmate.agent.launch.shell import Shell
from schedmate.agent.launch.state import Piece, State, from_value, to_value, token
from schedmate.agent.values import Origin, Value


def run_command(follower: Follower, command: str) -> None:
    """Follow a command as typed in the root of the repository."""
    state = State()
    follower.enter(state, ".")
    try:
        Shell(follower, state).script(command)
    except OutOfBudgetError:
        follower.complete = False
        follower.warn("the scripts do more than is followed: what comes later was not read")
    except RecursionError:
        follower.complete = False
        follower.warn("the scripts are nested too deeply: what comes later was not read")


def run_text(
    follower: Follower,
    text: str,
    line: int,
    file: str | None,
    name: str,
    arguments: list[Value],
    call: Call,
) -> Decision:
    """Follow shell text in a new shell that inherits what the call exports."""
    if call.depth >= MAX_SCRIPTS:
        return None
    here = call.state.origin(call.line)
    state = State(file=file, name=name, facts=dict(call.facts))
    state.typed = call.state.file is None
    state.launchers, state.sets = tuple(call.launchers), dict(call.sets)
    state.positional = [from_value(value, here) for value in arguments]
    for variable, value in call.env.items():
        state.assign(variable, from_value(value, here))
        state.exported.add(variable)
    follower.enter(state, call.cwd)
    state.variables.pop("OLDPWD", None)
    if file is not None:
        state.assign("BASH_SOURCE", (Piece(name, Origin("script", file)),))
    return Shell(follower, state, call.depth + 1).script(text, line)


def run_script(
    follower: Follower, path: str, name: str, arguments: list[Value], call: Call
) -> Decision:
    """Follow a shell script of the repository in a new shell."""
    text = follower.repo.read(path)
    if text is None:
        follower.warn(f"{path} is larger than {MAX_BYTES // 1_000_000} MB and was not read")
        return None
    if len(follower.scripts) >= MAX_SCRIPTS or follower.scripts.count(path) > 1:
        follower.warn(f"{path} starts itself again and again: it was followed twice")
        return None
    call.facts = from_batch_lines(text, path, follower.repo) | call.facts
    follower.scripts.append(path)
    try:
        return run_text(follower, text, 1, path, name, arguments, call)
    finally:
        follower.scripts.pop()


def shell(follower: Follower, call: Call) -> Decision:
    """`bash [options] file args`, `bash -c text`, or a shell that reads a here-document."""
    words = call.words[1:]
    is_text = False
    while words and token(words[0])[:1] in ("-", "+") and token(words[0]) != "-":
        option = token(words[0])
        words = words[1:]
        if option == "--":
            break
        if not option.startswith("--") and "c" in option:
            is_text = True
        elif option in ("-o", "+o", "-O", "--rcfile", "--init-file"):
            words = words[1:]
    if not words:
        return heredoc(follower, call) if call.heredoc is not None else True
    if is_text:
        return inline(follower, call, words[0], words[1:])
    return script(follower, call, words)


def inline(follower: Follower, call: Call, text: Value, arguments: list[Value]) -> Decision:
    """`sh -c text name args`."""
    line = text.origin.line if text.origin is not None and text.origin.line else call.line
    name = token(arguments[0]) if arguments else "bash"
    file = call.state.file
    return run_text(follower, token(text), line, file, name, arguments[1:], call)


def heredoc(follower: Follower, call: Call) -> Decision:
    """A script on standard input; the shell around it fills in its variables."""
    assert call.heredoc is not None
    here, call.heredoc = call.heredoc, None
    for name, variable in call.state.variables.items():
        if name not in ("PWD", "OLDPWD") and not variable.array:
            call.env.setdefault(name, to_value(variable.items.get("0", ())))
    file = call.state.file
    return run_text(follower, here.text, here.line, file, "bash", [], call)


def script(follower: Follower, call: Call, words: list[Value]) -> Decision:
    path = find_file(follower, call, words[0])
    if path is None:
        return missing(follower, call, token(words[0]))
    return run_script(follower, path, token(words[0]), words[1:], call)


def batch(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """`sbatch [options] script args` and `sbatch --wrap text`."""
    for option in options.given:
        if option.name in table.wrap and option.values:
            return inline(follower, call, option.values[0], [])
    return script(follower, call, options.rest)
