"""`schedmate rules`: the rules of the Failure Handler, and their test."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.errors import INTERNAL, did_you_mean
from schedmate.plain import dumps
from schedmate.terminal import say

SCHEMA = "schedmate.rules/v1"

app = typer.Typer(help="List and test the failure rules.", no_args_is_help=True)


@app.command("list")
def list_rules(
    word: Annotated[
        str | None, typer.Argument(help="Only rules with this word in them.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the rules with their patterns, meanings and sources."""
    from schedmate.logparse.failure.rules import load_rules
    from schedmate.terminal.screen import Screen

    rules = load_rules().rules
    if word is not None:
        rules = [rule for rule in rules if word.lower() in rule.model_dump_json().lower()]
        if not rules:
            known = {part for rule in load_rules().rules for part in (rule.id, rule.area)}
            words = {word for name in known for word in name.split("-")}
            say(f"no rule has {word!r} in it{did_you_mean(word, sorted(known | words)) or '.'}")
    if as_json:
        entries = [rule.model_dump(mode="json") for rule in rules]
        typer.echo(dumps({"schema": SCHEMA, "rules": entries}, indent=2))
        return
    screen = Screen(sys.stdout)
    area = None
    for rule in rules:
        if rule.area != area:
            area = rule.area
            screen.line(f"{area}:", "heading")
        what = f"{rule.name or '-'}, {rule.type}"
        if rule.component:
            what += f", {rule.component}"
        role = "" if rule.role == "cause" else f" [{rule.role}]"
        screen.line(f"{rule.id}: {what}{role}", label="  ")
        screen.line(rule.why, label="      ")
        screen.line(rule.source, label="      ")
    screen.line(f"{len(rules)} rules")


@app.command("test")
def check_rules(
    line: Annotated[
        str | None,
        typer.Argument(help="Show the rule that matches this line.", show_default=False),
    ] = None,
) -> None:
    """Check the rules' examples, or show which rule matches a line.

    Exits with 1 when an example fails, or when no rule matches the line.
    """
    from schedmate.logparse.failure.rules import failed_examples, load_rules, match_text
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    rules = load_rules()
    if line is not None:
        rule = match_text(rules, line)
        if rule is None:
            screen.line("no rule knows this line", "doubtful")
        else:
            screen.line(f"{rule.id}: {rule.why}", "good")
        raise typer.Exit(0 if rule else INTERNAL)
    problems = failed_examples(rules)
    for problem in problems:
        screen.line(problem)
    examples = sum(len(rule.examples) + len(rule.counter_examples) for rule in rules.rules)
    screen.line(
        f"{len(rules.rules)} rules, {examples} examples, {len(problems)} problems",
        "bad" if problems else "good",
    )
    raise typer.Exit(INTERNAL if problems else 0)
