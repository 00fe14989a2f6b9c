"""Follows a shell script without running it: control flow, functions, variables, directories.

What a test decides is followed; where it cannot be decided, every branch is followed in order from
the same starting point and the states are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedmate.agent.launch import arith, conditions, patterns, tree
from schedmate.agent.launch.conditions import Decision, Term
from schedmate.agent.launch.expand import Expander
from schedmate.agent.launch.lexer import Lexer
from schedmate.agent.launch.parser import parse_tokens
from schedmate.agent.launch.state import Piece, State, Text, joined, merge, plain
from schedmate.agent.launch.words import Substitution, Word

if TYPE_CHECKING:
    from schedmate.agent.launch.follow import Follower

MAX_ITERATIONS = 100
MAX_CALLS = 25


class LeaveSignal(BaseException):
    """Unwinds the shell. `level` is "exit", "return", "break" or "continue"."""

    def __init__(self, level: str, line: int) -> None:
        super().__init__(level)
        self.level = level
        self.line = line


class Shell:
    """One shell process: a `State` and the follower that its commands are handed to."""

    def __init__(self, follower: Follower, state: State, depth: int = 0) -> None:
        self.follower = follower
        self.state = state
        self.depth = depth
        self.expander = Expander(
            state, self._substitute, follower.provided(state), follower.ignore_exits
        )

    def run(self, nodes: Sequence[tree.Node]) -> Decision:
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
        """A subshell."""
        return Shell(self.follower, self.state.copy(), self.depth)

    def _substitute(self, part: Substitution) -> Text:
        from schedmate.agent.launch.substitution import evaluate

        origin = self.state.origin(part.line)
        if self.depth >= MAX_CALLS:
            return (Piece(part.raw, origin, known=False),)
        inner = self.fork()
        inner.depth = self.depth + 1
        output = evaluate(inner, part)
        return (Piece(part.raw, origin, known=False),) if output is None else output

    def node(self, node: tree.Node) -> Decision:
        """Follow one command."""
        match node:
            case tree.Simple():
                return self._simple(node)
            case tree.AndOr():
                return self._and_or(node)
            case tree.Pipeline():
                return self._pipeline(node)
            case tree.Condition():
                return self._test([self._term(word) for word in node.words])
            case tree.ArithmeticCommand():
                return self.arithmetic(node.text, node.line)
            case tree.If():
                return self._if(node)
            case tree.Case():
                return self._case(node)
            case tree.For():
                return self._for(node)
            case tree.CountingFor():
                self.arithmetic(node.start, node.line)
                test = lambda: self.arithmetic(node.test, node.line)  # noqa: E731
                step = lambda: self.arithmetic(node.step, node.line)  # noqa: E731
                return self._loop(node.line, test, node.body, step)
            case tree.While():
                test = lambda: self._until(self.run(node.test), node.until)  # noqa: E731
                return self._loop(node.line, test, node.body)
            case tree.Function():
                self.state.functions[node.name] = node.body
                return True
            case tree.Group():
                return (self.fork() if node.subshell else self).run(node.body)

    @staticmethod
    def _until(status: Decision, until: bool) -> Decision:
        return conditions.negate(status) if until else status

    # Commands

    def _simple(self, node: tree.Simple) -> Decision:
        arguments = [text for word in node.words for text in self.expander.fields(word)]
        if not arguments:
            for assignment in node.assignments:
                self.assign(assignment)
            return True
        prefix: dict[str, Text] = {}
        for item in node.assignments:
            prefix[item.name] = self.expander.text(item.value, variable=item.name)
        return self.command(arguments, prefix, node.line, node)

    def assign(self, item: tree.Assignment) -> None:
        """Carry out one assignment."""
        if item.value.array is not None:
            elements: list[tuple[str | None, Text]] = []
            for word in item.value.array:
                bare = word.parts[0] if word.parts else None
                keyed = getattr(bare, "text", "").startswith("[") and tree.keyed_element(word)
                if keyed:
                    key = plain(self.expander.text(Lexer(keyed[0]).whole(quoted=True)))
                    elements.append((key, self.expander.text(keyed[1], variable=item.name)))
                else:
                    elements += [(None, text) for text in self.expander.fields(word)]
            self.state.assign_array(item.name, elements, item.append)
            return
        text = self.expander.text(item.value, variable=item.name)
        index = "0"
        if item.index is not None:
            index = joined(self.expander.text(Lexer(item.index).whole(quoted=True)))
            number = None if index.isdigit() else self.expander.arithmetic(item.index, 1)
            index = index if number is None else str(number)
        self.state.assign(item.name, text, index, item.append)

    def command(
        self, arguments: list[Text], prefix: dict[str, Text], line: int, node: tree.Simple
    ) -> Decision:
        """A command whose words are expanded: function, builtin or program."""
        from schedmate.agent.launch.builtins import BUILTINS, Invocation

        name = joined(arguments[0])
        if name in self.state.functions:
            return self._call(name, arguments[1:])
        if name in ("[", "test"):
            words = list(node.words[1:])
            if name == "[" and words and words[-1].bare == "]":
                words.pop()
            return self._test([self._term(word) for word in words])
        if name in BUILTINS:
            return BUILTINS[name](Invocation(self, arguments[1:], node))
        return self.follower.command(self, arguments, prefix, line, node.heredoc)

    def _call(self, name: str, arguments: list[Text]) -> Decision:
        if self.depth >= MAX_CALLS:
            return True
        outer, self.state.positional = self.state.positional, arguments
        self.depth += 1
        try:
            return self.run(self.state.functions[name])
        except LeaveSignal as leave:
            if leave.level != "return":
                raise
            return True
        finally:
            self.depth -= 1
            self.state.positional = outer

    def arithmetic(self, text: str, line: int) -> Decision:
        """`((text))`: its effect, and whether it is not zero."""
        if not text.strip():
            return True
        expression = plain(self.expander.text(Lexer(text, line).whole(quoted=True)))
        origin = self.state.origin(line)

        def assign(name: str, value: int | None) -> None:
            known = value is not None
            self.state.assign(name, (Piece(str(value) if known else f"${name}", origin, known),))

        if expression is None:
            return None
        value = arith.execute(expression, self.expander.integer, assign)
        return None if value is None else value != 0

    # Control flow

    def _and_or(self, node: tree.AndOr) -> Decision:
        status: Decision = True
        for operator, item in node.items:
            go = status if operator == "&&" else conditions.negate(status)
            if go is None:
                self._branches([[item]], exhaustive=False)
            elif go:
                status = self.node(item)
        return status

    def _pipeline(self, node: tree.Pipeline) -> Decision:
        status: Decision = True
        for command in node.commands:
            shell = self.fork() if len(node.commands) > 1 else self
            status = shell.node(command)
        if len(node.commands) > 1 and status is True:
            status = self.follower.status_of_pipeline(node)
        return conditions.negate(status) if node.negated else status

    def _if(self, node: tree.If) -> Decision:
        open_branches: list[Sequence[tree.Node]] = []
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
            return self._branches(open_branches, exhaustive=bool(node.otherwise))
        if len(open_branches) == 1:
            return self.run(open_branches[0])
        return self._branches(open_branches, exhaustive=True)

    def _case(self, node: tree.Case) -> Decision:
        subject = plain(self.expander.text(node.subject))
        open_branches: list[Sequence[tree.Node]] = []
        for words, body in node.branches:
            found: Decision = False
            for word in words:
                pattern = self.expander.pattern(word)
                if pattern == "*" or (
                    pattern is not None
                    and subject is not None
                    and patterns.matches(pattern, subject)
                ):
                    found = True
                    break
                if pattern is None or subject is None:
                    found = None
            if found is False:
                continue
            open_branches.append(body)
            if found:
                if len(open_branches) == 1:
                    return self.run(body)
                return self._branches(open_branches, exhaustive=True)
        return self._branches(open_branches, exhaustive=False) if open_branches else True

    def _branches(self, bodies: Sequence[Sequence[tree.Node]], exhaustive: bool) -> Decision:
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
        merge(self.state, ended)
        return None

    def _for(self, node: tree.For) -> Decision:
        if node.words is None:
            values = list(self.state.positional)
        else:
            values = [text for word in node.words for text in self.expander.fields(word)]
        for number, value in enumerate(values[:MAX_ITERATIONS]):
            self.state.assign(node.name, value)
            before = len(self.follower.runs)
            if not self._iteration(node.body):
                break
            if len(self.follower.runs) > before:
                left = len(values) - number - 1
                if left:
                    self.follower.warn(
                        f"{self._where(node.line)} loops over {node.name}: the run with "
                        f"{node.name}={joined(value)} is described, {left} more follow"
                    )
                break
        return True

    def _loop(
        self,
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
                self._branches([body], exhaustive=False)
                break
            before = len(self.follower.runs)
            if not self._iteration(body):
                break
            if len(self.follower.runs) > before:
                self.follower.warn(f"{self._where(line)} is a loop: its first run is described")
                break
            if step is not None:
                step()
        return True

    def _iteration(self, body: Sequence[tree.Node]) -> bool:
        """Whether the loop goes on after this iteration."""
        try:
            self.run(body)
        except LeaveSignal as leave:
            if leave.level not in ("break", "continue"):
                raise
            return leave.level == "continue"
        return True

    def _where(self, line: int) -> str:
        return f"{self.state.file}:{line}" if self.state.file else "the command"

    # Tests

    def _term(self, word: Word | str) -> Term:
        if isinstance(word, str):
            return Term(word, None)
        self.expander.unset_is_empty = True
        try:
            return Term(plain(self.expander.text(word)), self.expander.pattern(word))
        finally:
            self.expander.unset_is_empty = False

    def _test(self, terms: list[Term]) -> Decision:
        def exists(operator: str, path: str) -> Decision:
            return self.follower.exists(operator, path, self.state.cwd)

        def is_set(name: str) -> Decision:
            return name in self.state.variables or None

        return conditions.evaluate(terms, exists, is_set)
