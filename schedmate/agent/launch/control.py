"""A shell's control flow: branches that may be undecided, loops, and leaving them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedmate.agent.launch import conditions, patterns, tree
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Shell
from schedmate.agent.launch.state import State, joined, merge, plain

MAX_ITERATIONS = 100


class LeaveSignal(BaseException):
    """Unwinds the shell. `level` is "exit", "return", "break" or "continue"."""

    def __init__(self, level: str, line: int) -> None:
        super().__init__(level)
        self.level = level
        self.line = line


def and_or(shell: Shell, node: tree.AndOr) -> Decision:
    status: Decision = True
    for operator, item in node.items:
        go = status if operator == "&&" else conditions.negate(status)
        if go is None:
            _branches(shell, [[item]], exhaustive=False)
        elif go:
            status = shell.node(item)
    return status


def pipeline(shell: Shell, node: tree.Pipeline) -> Decision:
    status: Decision = True
    for command in node.commands:
        stage = shell.fork() if len(node.commands) > 1 else shell
        status = stage.node(command)
    if len(node.commands) > 1 and status is True:
        last = node.commands[-1]
        name = last.words[0].bare if isinstance(last, tree.Simple) and last.words else None
        status = None if name in shell.follower.rules.uncertain else True
    return conditions.negate(status) if node.negated else status


def if_(shell: Shell, node: tree.If) -> Decision:
    open_branches: list[Sequence[tree.Node]] = []
    for test, body in node.branches:
        decision = shell.run(test)
        if decision is False:
            continue
        open_branches.append(body)
        if decision:
            break
    else:
        if not open_branches:
            return shell.run(node.otherwise)
        if node.otherwise:
            open_branches.append(node.otherwise)
        return _branches(shell, open_branches, exhaustive=bool(node.otherwise))
    if len(open_branches) == 1:
        return shell.run(open_branches[0])
    return _branches(shell, open_branches, exhaustive=True)


def case(shell: Shell, node: tree.Case) -> Decision:
    subject = plain(shell.expander.text(node.subject))
    open_branches: list[Sequence[tree.Node]] = []
    for words, body in node.branches:
        matched: Decision = False
        for word in words:
            pattern = shell.expander.pattern(word)
            if pattern == "*" or (
                pattern is not None and subject is not None and patterns.matches(pattern, subject)
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
                return shell.run(body)
            return _branches(shell, open_branches, exhaustive=True)
    return _branches(shell, open_branches, exhaustive=False) if open_branches else True


def _branches(shell: Shell, bodies: Sequence[Sequence[tree.Node]], exhaustive: bool) -> Decision:
    """Follow alternatives of which it is not known which one runs."""
    ended: list[State] = [] if exhaustive else [shell.state.copy()]
    with shell.follower.undecided():
        for body in bodies:
            branch = shell.fork()
            try:
                branch.run(body)
                ended.append(branch.state)
            except LeaveSignal:
                continue  # what follows is reached by the other branches
    merge(shell.state, ended)
    return None


def for_(shell: Shell, node: tree.For) -> Decision:
    if node.words is None:
        values = list(shell.state.positional)
    else:
        values = [text for word in node.words for text in shell.expander.fields(word)]
    for number, value in enumerate(values[:MAX_ITERATIONS]):
        shell.state.assign(node.name, value)
        before = len(shell.follower.runs)
        if not _iteration(shell, node.body):
            break
        if len(shell.follower.runs) > before:
            left = len(values) - number - 1
            if left:
                shell.follower.warn(
                    f"{shell.where(node.line)} loops over {node.name}: the run with "
                    f"{node.name}={joined(value)} is described, {left} more follow"
                )
            break
    return True


def loop(
    shell: Shell,
    line: int,
    test: Callable[[], Decision],
    body: Sequence[tree.Node],
    step: Callable[[], Decision] | None = None,
) -> Decision:
    for _ in range(MAX_ITERATIONS):
        decision = test()
        if decision is False:
            break
        if decision is None:
            _branches(shell, [body], exhaustive=False)
            break
        before = len(shell.follower.runs)
        if not _iteration(shell, body):
            break
        if len(shell.follower.runs) > before:
            shell.follower.warn(f"{shell.where(line)} is a loop: its first run is described")
            break
        if step is not None:
            step()
    return True


def _iteration(shell: Shell, body: Sequence[tree.Node]) -> bool:
    """Whether the loop goes on after this iteration."""
    try:
        shell.run(body)
    except LeaveSignal as leave:
        if leave.level not in ("break", "continue"):
            raise
        return leave.level == "continue"
    return True
