"""Follows a shell script without running it: control flow, functions, variables, directories.

What a test decides is followed; where it cannot be decided, every branch is followed in order from
the same starting point and the states are merged. Before the `Shell` stand the builtins that change
what a later command sees, and the command substitutions whose output follows from the script alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from schedmate.agent.bounds import linear_pattern_for
from schedmate.agent.launch import shell_grammar, shell_operators
from schedmate.agent.launch.plan import MAX_SCRIPTS, Call, Follower, locate_file
from schedmate.agent.launch.shell_expansion import (
    Expander,
    Piece,
    State,
    Text,
    joined_text,
    known_text,
    merge_states,
    split_fields,
    to_value,
)
from schedmate.agent.launch.shell_grammar import (
    Lexer,
    Substitution,
    Word,
    parse_script,
    parse_tokens,
)
from schedmate.agent.launch.shell_operators import Decision, TestOperand

MAX_ITERATIONS = 100


class LeaveSignal(BaseException):
    """Unwinds the shell. `level` is "exit", "return", "break" or "continue"."""

    def __init__(self, level: str, line: int) -> None:
        super().__init__(level)
        self.level = level
        self.line = line


# The shell builtins that change what a later command sees.


@dataclass(frozen=True, slots=True)
class Invocation:
    """A builtin's shell, its expanded arguments and the command it stands in."""

    shell: Shell
    arguments: list[Text]
    node: shell_grammar.Simple


Builtin = Callable[[Invocation], Decision]


def _declare(call: Invocation) -> Decision:
    """`export`, `declare`, `typeset`, `local`, `readonly`: assignments among the words."""
    command = call.node.words[0].bare
    options = [word.bare or "" for word in call.node.words[1:]]
    exports = command == "export" or any(o.startswith("-") and "x" in o for o in options)
    for word in call.node.words[1:]:
        assignment = shell_grammar.as_assignment(word)
        if assignment is not None:
            call.shell.assign(assignment)
            names = [assignment.name]
        else:
            names = [joined_text(text) for text in call.shell.expander.fields(word)]
            names = [name for name in names if not name.startswith("-")]
        if exports:
            call.shell.state.exported.update(names)
    return True


def _unset(call: Invocation) -> Decision:
    for name in map(joined_text, call.arguments):
        call.shell.state.variables.pop(name, None)
        call.shell.state.exported.discard(name)
    return True


def _set(call: Invocation) -> Decision:
    words = [joined_text(text) for text in call.arguments]
    if "--" in words or (words and not words[0].startswith(("-", "+"))):
        behind = words.index("--") + 1 if "--" in words else 0
        call.shell.state.positional, call.shell.state.typed = call.arguments[behind:], False
    return True


def _shift(call: Invocation) -> Decision:
    text = known_text(call.arguments[0]) if call.arguments else "1"
    count = int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else 1
    enough = count <= len(call.shell.state.positional)
    if enough:
        del call.shell.state.positional[:count]
    return enough


def _cd(call: Invocation) -> Decision:
    targets = [text for text in call.arguments if not joined_text(text).startswith("-")]
    if targets:
        call.shell.follower.change_directory(call.shell.state, targets[0])
    elif call.node.words[0].bare == "popd" or (
        call.arguments and joined_text(call.arguments[0]) == "-"
    ):
        before = call.shell.state.variables.get("OLDPWD")
        if before is not None:
            call.shell.follower.change_directory(call.shell.state, before.items.get("0", ()))
    return True


def _eval(call: Invocation) -> Decision:
    return call.shell.run(parse_script(" ".join(map(joined_text, call.arguments)), call.node.line))


def _source(call: Invocation) -> Decision:
    """`source file args`: a script of the repository read into the same shell."""
    state, follower = call.shell.state, call.shell.follower
    path = text = None
    if call.arguments and len(follower.scripts) < MAX_SCRIPTS:
        path, _ = locate_file(follower, to_value(call.arguments[0]), state.cwd, state.file)
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
    names = [name for name in map(joined_text, call.arguments) if name.isidentifier()]
    options = "".join(
        joined_text(text)[1:] for text in call.arguments if joined_text(text)[:1] == "-"
    )
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
    specification = known_text(call.arguments[0]) if len(call.arguments) >= 2 else None
    name = joined_text(call.arguments[1]) if len(call.arguments) >= 2 else ""
    number = (
        known_text(state.variables["OPTIND"].items["0"]) if "OPTIND" in state.variables else "1"
    )
    if specification is None or number is None or not re.fullmatch(r"\d{1,9}", number):
        return None
    position = int(number)
    option = known_text(state.positional[position - 1]) if position <= len(state.positional) else ""
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
        status = call.shell.arithmetic(joined_text(text), call.node.line)
    return status


def _leave_by(level: str) -> Builtin:
    def leave(call: Invocation) -> Decision:
        if level == "exit" and call.shell.follower.ignore_exits:
            return None
        raise LeaveSignal(level, call.node.line)

    return leave


def _command_builtin(call: Invocation) -> Decision:
    """`command -v name` looks for a program, `command name args` runs it."""
    options, words = [], list(call.arguments)
    while words and joined_text(words[0]).startswith("-"):
        options.append(joined_text(words.pop(0)))
    if any("v" in option.lower() for option in options):
        scripts = call.shell.follower.repo.console_scripts
        return True if words and joined_text(words[0]) in scripts else None
    return call.shell.command(words, {}, call.node.line, call.node) if words else True


BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _declare),
    **dict.fromkeys(("cd", "pushd", "popd"), _cd),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("read", "mapfile", "readarray"), _read),
    **dict.fromkeys(
        ("true", ":", "trap", "wait", "ulimit", "umask", "shopt", "alias"), lambda _: True
    ),
    **{level: _leave_by(level) for level in ("exit", "return", "break", "continue")},
    "command": _command_builtin,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "eval": _eval,
    "getopts": _getopts,
    "let": _let,
    "false": lambda _: False,
}


# Command substitutions whose output follows from the script alone. Nothing is run.


MAX_SEQUENCE = 1_000
MAX_SED_TEXT = 10_000
"""Longest text that `sed` is applied to."""
MAX_REPLACEMENT = 200


def output_of(shell: Shell, part: Substitution) -> Text | None:
    """What a substitution prints, or None where that depends on the machine or on time."""
    if part.raw.startswith(("<", ">")):
        return None
    output = _output_of_block(shell, parse_script(part.text, part.line))
    if output is None:
        return None
    trimmed = list(output)
    while trimmed and not trimmed[-1].text.strip("\n"):
        trimmed.pop()
    return tuple(trimmed)


def _output_of_block(
    shell: Shell, nodes: Sequence[shell_grammar.Node], chained: bool = False
) -> Text | None:
    """What commands print in turn; in `a && b` a test may decide that nothing more is printed."""
    output: Text = ()
    for node in nodes:
        if chained and _is_test(node):
            decision = shell.node(node)
            if not decision:
                return output if decision is False else None
            continue
        shell.follower.tick()
        printed = _output_of_node(shell, node)
        if printed is None:
            return None
        output += printed
    return output


def _is_test(node: shell_grammar.Node) -> bool:
    first = node.words[:1] if isinstance(node, shell_grammar.Simple) else []
    tests = any(word.bare in ("[", "test") for word in first)
    return tests or isinstance(node, shell_grammar.Condition)


def _output_of_node(shell: Shell, node: shell_grammar.Node) -> Text | None:
    match node:
        case shell_grammar.AndOr() if all(operator == "&&" for operator, _ in node.items):
            return _output_of_block(shell, [item for _, item in node.items], chained=True)
        case shell_grammar.AndOr():  # `command || fallback`
            return _output_of_node(shell, node.items[0][1]) if len(node.items) == 2 else None
        case shell_grammar.Group():
            return _output_of_block(shell, node.body)
        case shell_grammar.Pipeline() if not node.negated:
            return _output_of_pipeline(shell, node.commands)
        case shell_grammar.Simple():
            return _output_of_command(shell, node)
        case _:
            return None


def _output_of_command(shell: Shell, node: shell_grammar.Simple) -> Text | None:
    words = [text for word in node.words for text in shell.expander.fields(word)]
    if not words:
        for assignment in node.assignments:
            shell.assign(assignment)
        return ()
    name, arguments = posixpath.basename(joined_text(words[0])), words[1:]
    origin = shell.state.origin(node.line)
    if name in ("cd", "pushd", "export", "set", "true", ":"):
        BUILTINS[name](Invocation(shell, arguments, node))
        return ()
    if name == "pwd":
        return (Piece(shell.follower.absolute(shell.state.cwd), origin),)
    if name == "eval":
        return _output_of_block(
            shell, parse_script(" ".join(map(joined_text, arguments)), node.line)
        )
    if name == "cat" and not arguments and node.heredoc is not None:
        return shell.expander.heredoc(node.heredoc)
    if name == "echo":
        while arguments and re.fullmatch(r"-[neE]+", joined_text(arguments[0])):
            arguments = arguments[1:]
        spaced: Text = ()
        for number, text in enumerate(arguments):
            spaced += ((Piece(" ", origin),) if number else ()) + text
        return spaced
    table = shell.follower.rules.launchers.get(name)
    if table is not None and table.run == "shell":  # `job=$(sbatch --parsable train.sh)`
        shell.command(words, {}, node.line, node)
        return None
    plains = [known_text(text) for text in arguments]
    known = [text for text in plains if text is not None]
    if len(known) < len(plains):
        return None
    printed = _output_of_utility(shell, name, known)
    return None if printed is None else (Piece(printed, origin),)


def _output_of_utility(shell: Shell, name: str, arguments: list[str]) -> str | None:
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
        return _output_of_seq(arguments)
    if name == "git" and arguments == ["rev-parse", "--show-toplevel"]:
        return shell.follower.absolute(".")
    return None


def _output_of_seq(arguments: list[str]) -> str | None:
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


def _output_of_pipeline(shell: Shell, commands: Sequence[shell_grammar.Node]) -> Text | None:
    """A known text through simple filters, or a count of this node's GPUs."""
    filters: list[list[str]] = []
    for command in commands[1:]:
        if not isinstance(command, shell_grammar.Simple):
            return None
        words = [known_text(text) for word in command.words for text in shell.expander.fields(word)]
        known = [word for word in words if word is not None]
        if len(known) < len(words) or not known:
            return None
        filters.append(known)
    first = commands[0]
    if isinstance(first, shell_grammar.Simple) and first.words:
        origin = shell.state.origin(first.line)
        if joined_text(shell.expander.text(first.words[0])) == "nvidia-smi":
            count = shell.follower.gpus_per_node(shell.state)
            counted = filters and filters[-1] in (["wc", "-l"], ["grep", "-c", "GPU"])
            return (Piece(str(count), origin),) if count is not None and counted else None
    output = _output_of_node(shell, first)
    text = None if output is None else known_text(output)
    if output is None or text is None:
        return None
    text += "\n"
    for filter_words in filters:
        filtered = _apply_filter(text, filter_words)
        if filtered is None:
            return None
        text = filtered
    return (Piece(text.rstrip("\n"), shell.state.origin(shell_grammar.line_of(first))),)


def _apply_filter(text: str, words: list[str]) -> str | None:
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
            return _apply_awk(text, "".join(options)[2:] or None, program)
        case ["sed", *options, program] if all(re.fullmatch(r"-[Erne]", o) for o in options):
            return apply_sed(text, program, bool({"-E", "-r"} & {*options}))
        case ["cut", *options] if cut := re.fullmatch(
            r"(?:-d|--delimiter)(.)-f(\d)", "".join(options)
        ):
            return _nth_item(text.rstrip("\n").split(cut[1]), int(cut[2]))
        case ["head", "-n1" | "-1"] | ["head", "-n", "1"]:
            return text.partition("\n")[0]
        case ["tail", "-n1" | "-1"] | ["tail", "-n", "1"]:
            return text.rstrip("\n").rpartition("\n")[2]
        case ["xargs"]:
            return " ".join(text.split())
        case _:
            return None


def _apply_awk(text: str, separator: str | None, program: str) -> str | None:
    """`{print NF}` and `{print $2}` of one line."""
    fields = text.rstrip("\n").split(separator)
    statement = re.sub(r"\s", "", program)
    if statement == "{printNF}":
        return str(len(fields))
    which = re.fullmatch(r"\{print\$(NF|\d)\}", statement)
    if which is None or "\n" in text.rstrip("\n"):
        return None
    return _nth_item(fields, len(fields) if which[1] == "NF" else int(which[1]))


def apply_sed(text: str, program: str, extended: bool) -> str | None:
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
        pattern = linear_pattern_for(command[2], line, every=True)
        if pattern is None or len(new) > MAX_REPLACEMENT or len(text) > MAX_SED_TEXT:
            return None
        changed.append(pattern.sub(new, line, count))
    return "\n".join(changed)


def _nth_item(items: list[str], number: int) -> str:
    return items[number - 1] if 1 <= number <= len(items) else ""


# One shell process.


MAX_CALLS = 25


class Shell:
    """One shell process: a `State` and the follower that its commands are handed to."""

    def __init__(self, follower: Follower, state: State, depth: int = 0) -> None:
        self.follower = follower
        self.state = state
        self.depth = depth
        self.expander = Expander(
            state,
            self._substitute,
            follower.provided(state),
            follower.ignore_exits,
            follower.left_out,
        )

    def run(self, nodes: Sequence[shell_grammar.Node]) -> Decision:
        """Follow commands in order; the decision is the last one's exit status (True: success)."""
        status: Decision = True
        for node in nodes:
            self.follower.tick()
            status = self.node(node)
        return status

    def script(self, text: str, line: int = 1) -> Decision:
        """Parse and follow a text in this shell; `exit` ends it."""
        lexer = Lexer(text, line)
        nodes = parse_tokens(lexer.tokens())
        if lexer.truncated:
            self.follower.warn(f"{self.state.file or 'the command'} is too long to be read whole")
        try:
            return self.run(nodes)
        except LeaveSignal as leave:
            if leave.level == "exit":
                self.follower.left = (self.state.file, leave.line)
            return True

    def fork(self) -> Shell:
        """A copy of the shell whose changes do not reach this one: a subshell."""
        return Shell(self.follower, self.state.copy(), self.depth)

    def _substitute(self, part: Substitution) -> Text:
        origin = self.state.origin(part.line)
        if self.depth >= MAX_CALLS:
            return (Piece(part.raw, origin, known=False),)
        inner = self.fork()
        inner.depth = self.depth + 1
        output = output_of(inner, part)
        return (Piece(part.raw, origin, known=False),) if output is None else output

    def node(self, node: shell_grammar.Node) -> Decision:
        """Follow one command."""
        match node:
            case shell_grammar.Simple():
                return self._simple(node)
            case shell_grammar.AndOr():
                return self._follow_and_or(node)
            case shell_grammar.Pipeline():
                return self._follow_pipeline(node)
            case shell_grammar.Condition():
                return self._test([self._term(word) for word in node.words])
            case shell_grammar.ArithmeticCommand():
                return self.arithmetic(node.text, node.line)
            case shell_grammar.If():
                return self._follow_if(node)
            case shell_grammar.Case():
                return self._follow_case(node)
            case shell_grammar.For():
                return self._follow_for(node)
            case shell_grammar.While():
                return self._follow_while(node)
            case shell_grammar.Function():
                self.state.functions[node.name] = node.body
                return True
            case shell_grammar.Group():
                return (self.fork() if node.subshell else self).run(node.body)

    # Control flow

    def _follow_and_or(self, node: shell_grammar.AndOr) -> Decision:
        status: Decision = True
        for operator, item in node.items:
            go = status if operator == "&&" else shell_operators.negate(status)
            if go is None:
                self._follow_branches([[item]], exhaustive=False)
            elif go:
                status = self.node(item)
        return status

    def _follow_pipeline(self, node: shell_grammar.Pipeline) -> Decision:
        status: Decision = True
        for command in node.commands:
            stage = self.fork() if len(node.commands) > 1 else self
            status = stage.node(command)
        if len(node.commands) > 1 and status is True:
            last = node.commands[-1]
            name = (
                last.words[0].bare
                if isinstance(last, shell_grammar.Simple) and last.words
                else None
            )
            status = None if name in self.follower.rules.uncertain else True
        return shell_operators.negate(status) if node.negated else status

    def _follow_if(self, node: shell_grammar.If) -> Decision:
        open_branches: list[Sequence[shell_grammar.Node]] = []
        for test, body in node.branches:
            decision = self.run(test)
            if decision is False:
                continue
            open_branches.append(body)
            if decision:
                break
        else:
            if not open_branches:
                return self.run(node.otherwise)
            if node.otherwise:
                open_branches.append(node.otherwise)
            return self._follow_branches(open_branches, exhaustive=bool(node.otherwise))
        if len(open_branches) == 1:
            return self.run(open_branches[0])
        return self._follow_branches(open_branches, exhaustive=True)

    def _follow_case(self, node: shell_grammar.Case) -> Decision:
        subject = known_text(self.expander.text(node.subject))
        open_branches: list[Sequence[shell_grammar.Node]] = []
        for words, body in node.branches:
            matched: Decision = False
            for word in words:
                pattern = self.expander.pattern(word)
                if pattern == "*" or (
                    pattern is not None
                    and subject is not None
                    and shell_operators.matches_pattern(pattern, subject)
                ):
                    matched = True
                    break
                if pattern is None or subject is None:
                    matched = None
            if matched is False:
                continue
            open_branches.append(body)
            if matched:
                if len(open_branches) == 1:
                    return self.run(body)
                return self._follow_branches(open_branches, exhaustive=True)
        return self._follow_branches(open_branches, exhaustive=False) if open_branches else True

    def _follow_branches(
        self, bodies: Sequence[Sequence[shell_grammar.Node]], exhaustive: bool
    ) -> Decision:
        """Follow alternatives of which it is not known which one runs."""
        ended: list[State] = [] if exhaustive else [self.state.copy()]
        with self.follower.undecided():
            for body in bodies:
                branch = self.fork()
                try:
                    branch.run(body)
                    ended.append(branch.state)
                except LeaveSignal:
                    continue  # what follows is reached by the other branches
        merge_states(self.state, ended)
        return None

    def _follow_for(self, node: shell_grammar.For) -> Decision:
        if node.words is None:
            values = list(self.state.positional)
        else:
            values = [text for word in node.words for text in self.expander.fields(word)]
        for number, value in enumerate(values[:MAX_ITERATIONS]):
            self.state.assign(node.name, value)
            before = len(self.follower.runs)
            if not self._follow_iteration(node.body):
                break
            if len(self.follower.runs) > before:
                left = len(values) - number - 1
                if left:
                    self.follower.warn(
                        f"{self.where(node.line)} loops over {node.name}: the run with "
                        f"{node.name}={joined_text(value)} is described, {left} more follow"
                    )
                break
        return True

    def _follow_while(self, node: shell_grammar.While) -> Decision:
        for _ in range(MAX_ITERATIONS):
            decision = self.run(node.test)
            if decision is None:
                self._follow_branches([node.body], exhaustive=False)
            if decision is None or decision is node.until:
                break
            before = len(self.follower.runs)
            if not self._follow_iteration(node.body):
                break
            if len(self.follower.runs) > before:
                self.follower.warn(f"{self.where(node.line)} is a loop: its first run is described")
                break
            self.arithmetic(node.step, node.line)
        return True

    def _follow_iteration(self, body: Sequence[shell_grammar.Node]) -> bool:
        """Whether the loop goes on after this iteration."""
        try:
            self.run(body)
        except LeaveSignal as leave:
            if leave.level not in ("break", "continue"):
                raise
            return leave.level == "continue"
        return True

    # Commands

    def _simple(self, node: shell_grammar.Simple) -> Decision:
        arguments = [text for word in node.words for text in self.expander.fields(word)]
        if not arguments:
            for assignment in node.assignments:
                self.assign(assignment)
            return True
        prefix: dict[str, Text] = {}
        for item in node.assignments:
            prefix[item.name] = self.expander.text(item.value, variable=item.name)
        return self.command(arguments, prefix, node.line, node)

    def assign(self, item: shell_grammar.Assignment) -> None:
        """Carry out one assignment."""
        if item.value.array is not None:
            elements: list[tuple[str | None, Text]] = []
            for word in item.value.array:
                keyed = shell_grammar.keyed_element(word)
                if keyed is not None:
                    key = known_text(self.expander.text(Lexer(keyed[0]).whole(quoted=True)))
                    elements.append((key, self.expander.text(keyed[1], variable=item.name)))
                else:
                    elements += [(None, text) for text in self.expander.fields(word)]
            self.state.assign_array(item.name, elements, item.append)
            return
        text = self.expander.text(item.value, variable=item.name)
        index = "0"
        if item.index is not None:
            index = joined_text(self.expander.text(Lexer(item.index).whole(quoted=True)))
            number = None if index.isdigit() else self.expander.arithmetic(item.index, 1)
            index = index if number is None else str(number)
        self.state.assign(item.name, text, index, item.append)

    def command(
        self, arguments: list[Text], prefix: dict[str, Text], line: int, node: shell_grammar.Simple
    ) -> Decision:
        """A command whose words are expanded: function, builtin or program."""
        name = joined_text(arguments[0])
        if name in self.state.functions:
            return self._call(name, arguments[1:])
        if name in ("[", "test"):
            words = list(node.words[1:])
            if name == "[" and words and words[-1].bare == "]":
                words.pop()
            return self._test([self._term(word) for word in words])
        if name in BUILTINS:
            return BUILTINS[name](Invocation(self, arguments[1:], node))
        call = Call(
            words=[to_value(text) for text in arguments],
            env=self.state.environment() | {key: to_value(text) for key, text in prefix.items()},
            cwd=self.state.cwd,
            facts=dict(self.state.facts),
            launchers=list(self.state.launchers),
            sets=dict(self.state.sets),
            state=self.state,
            depth=self.depth,
            line=line,
            heredoc=node.heredoc,
        )
        return self.follower.start(self.follower, call)

    def _call(self, name: str, arguments: list[Text]) -> Decision:
        if self.depth >= MAX_CALLS:
            return True
        outer = self.state.positional, self.state.typed
        self.state.positional, self.state.typed = arguments, False
        self.depth += 1
        try:
            return self.run(self.state.functions[name])
        except LeaveSignal as leave:
            if leave.level != "return":
                raise
            return True
        finally:
            self.depth -= 1
            self.state.positional, self.state.typed = outer

    def arithmetic(self, text: str, line: int) -> Decision:
        """`((text))`: its effect, and whether it is not zero."""
        if not text.strip():
            return True
        expression = known_text(self.expander.text(Lexer(text, line).whole(quoted=True)))
        origin = self.state.origin(line)

        def assign(name: str, value: int | None) -> None:
            known = value is not None
            self.state.assign(name, (Piece(str(value) if known else f"${name}", origin, known),))

        if expression is None:
            return None
        value = shell_operators.execute_arithmetic(expression, self.expander.integer, assign)
        return None if value is None else value != 0

    def where(self, line: int) -> str:
        """The line as warnings name it."""
        return f"{self.state.file}:{line}" if self.state.file else "the command"

    # Tests

    def _term(self, word: Word | str) -> TestOperand:
        if isinstance(word, str):
            return TestOperand(word, None)
        self.expander.unset_is_empty = True
        try:
            return TestOperand(known_text(self.expander.text(word)), self.expander.pattern(word))
        finally:
            self.expander.unset_is_empty = False

    def _test(self, terms: list[TestOperand]) -> Decision:
        def exists(operator: str, path: str) -> Decision:
            return self.follower.exists(operator, path, self.state.cwd)

        def is_set(name: str) -> Decision:
            return name in self.state.variables or None

        return shell_operators.decide(terms, exists, is_set)
