"""Shell and batch scripts: a file, a here-document, or text among the words."""

from __future__ import annotations

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.entry import find_file, missing
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options, Table
from schedmate.agent.launch.state import to_value, token
from schedmate.agent.values import Value


def shell(follower: Follower, call: Call) -> Decision:
    """`bash [options] file args`, `bash -c text`, or a shell that reads a here-document."""
    words = call.words[1:]
    given = False
    while words and token(words[0])[:1] in ("-", "+") and token(words[0]) != "-":
        option = token(words[0])
        words = words[1:]
        if option == "--":
            break
        if not option.startswith("--") and "c" in option:
            given = True
        elif option in ("-o", "+o", "-O", "--rcfile", "--init-file"):
            words = words[1:]
    if not words:
        return heredoc(follower, call) if call.heredoc is not None else True
    if given:
        return inline(follower, call, words[0], words[1:])
    return script(follower, call, words)


def inline(follower: Follower, call: Call, text: Value, arguments: list[Value]) -> Decision:
    """`sh -c text name args`."""
    line = text.origin.line if text.origin is not None and text.origin.line else call.line
    name = token(arguments[0]) if arguments else "bash"
    file = call.shell.state.file
    return follower.run_text(token(text), line, file, name, arguments[1:], call)


def heredoc(follower: Follower, call: Call) -> Decision:
    """A script on standard input; the shell around it fills in its variables."""
    assert call.heredoc is not None
    here, call.heredoc = call.heredoc, None
    for name, variable in call.shell.state.variables.items():
        if name not in ("PWD", "OLDPWD") and not variable.array:
            call.env.setdefault(name, to_value(variable.items.get("0", ())))
    file = call.shell.state.file
    return follower.run_text(here.text, here.line, file, "bash", [], call)


def script(follower: Follower, call: Call, words: list[Value]) -> Decision:
    found = find_file(follower, call, words[0])
    if found is None:
        return missing(follower, call, token(words[0]))
    return follower.run_script(found, token(words[0]), words[1:], call)


def batch(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """`sbatch [options] script args` and `sbatch --wrap text`."""
    for option in options.given:
        if option.name in table.wrap and option.values:
            return inline(follower, call, option.values[0], [])
    return script(follower, call, options.rest)
