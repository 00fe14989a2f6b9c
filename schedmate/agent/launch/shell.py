"""Follows a shell script without running it: control flow, functions, variables, directories.

What a test decides is followed; where it cannot be decided, every branch is followed in order from
the same starting point and the states are merged.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedmate.agent.launch import arith, conditions, control, tree
from schedmate.agent.launch.builtins import BUILTINS, Invocation
from schedmate.agent.launch.conditions import Decision, Term
from schedmate.agent.launch.control import LeaveSignal
from schedmate.agent.launch.expand import Expander
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.lexer import Lexer
from schedmate.agent.launch.parser import parse_tokens
from schedmate.agent.launch.state import Piece, State, Text, joined, plain, to_value
from schedmate.agent.launch.substitution import evaluate
from schedmate.agent.launch.words import Substitution, Word

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
                return control.and_or(self, node)
            case tree.Pipeline():
                return control.pipeline(self, node)
            case tree.Condition():
                return self._test([self._term(word) for word in node.words])
            case tree.ArithmeticCommand():
                return self.arithmetic(node.text, node.line)
            case tree.If():
                return control.if_(self, node)
            case tree.Case():
                return control.case(self, node)
            case tree.For():
                return control.for_(self, node)
            case tree.CountingFor():
                self.arithmetic(node.start, node.line)
                test = lambda: self.arithmetic(node.test, node.line)  # noqa: E731
                step = lambda: self.arithmetic(node.step, node.line)  # noqa: E731
                return control.loop(self, node.line, test, node.body, step)
            case tree.While():
                test = lambda: self._until(self.run(node.test), node.until)  # noqa: E731
                return control.loop(self, node.line, test, node.body)
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
                keyed = tree.keyed_element(word)
                if keyed is not None:
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
        expression = plain(self.expander.text(Lexer(text, line).whole(quoted=True)))
        origin = self.state.origin(line)

        def assign(name: str, value: int | None) -> None:
            known = value is not None
            self.state.assign(name, (Piece(str(value) if known else f"${name}", origin, known),))

        if expression is None:
            return None
        value = arith.execute(expression, self.expander.integer, assign)
        return None if value is None else value != 0

    def where(self, line: int) -> str:
        """The line as warnings name it."""
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
