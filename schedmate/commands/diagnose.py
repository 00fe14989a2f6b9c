"""`schedmate diagnose` and `rules`: what failed first in a job, and the rules that say so."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import FAILED_JOB, INTERNAL, UsageError, did_you_mean
from schedmate.base.inputs import host_name
from schedmate.base.terminal import Screen, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.jobs import Diagnosis
    from schedmate.logparse.failure.rules import RuleSet
    from schedmate.logparse.reading import Log
    from schedmate.settings import Settings


SCHEMA = "schedmate.diagnose/v1"


def diagnose(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="One job's log: files, a directory with a file per rank, or - for standard input. "
            "On the cluster, the job's id is enough.",
        ),
    ],
    node_logs: options.NodeLogsOption = None,
    nodes: options.NodesOption = None,
    healthy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="LOG",
            help=(
                "Log of a successful run of the same workload; lines that it also has do not "
                "count as evidence. Repeatable."
            ),
        ),
    ] = None,
    locator: Annotated[
        Literal["auto", "scan", "binary"],
        typer.Option(
            help=(
                "scan: read everything. binary: bisect as in the SchedMate paper. auto: "
                "choose by size."
            )
        ),
    ] = "auto",
    llm_base_url: options.LlmBaseUrl = None,
    llm_model: options.LlmModel = None,
    llm_timeout: options.LlmTimeout = None,
    llm_deadline: options.LlmDeadline = None,
    window: Annotated[
        int,
        typer.Option(min=10, max=5000, help="Lines around the failure that are shown to a model."),
    ] = 200,
    follow_links: options.FollowLinks = False,
    as_json: options.JsonOption = False,
    form: options.Format = "text",
    html: options.HtmlOption = None,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 6 when the job failed (any type but none)."),
    ] = False,
) -> None:
    """Find what failed first in a job, and what to do about it.

    Rules decide, without a model and without network; `schedmate rules list` shows them. If they
    leave the type of the failure open, or if ranks contradict each other, a language model is
    asked, where one is named. It has to cite a line as proof. Its answer adds no step to the plan.
    """
    from schedmate.base.confine.limits import bounded
    from schedmate.settings import load_settings

    options.check_format(form, as_json=as_json)
    logs, its_nodes = options.named_logs(logs)
    nodes = nodes or its_nodes
    settings = load_settings(
        llm_base_url=llm_base_url,
        llm_model=llm_model,
        llm_timeout_s=llm_timeout,
        llm_deadline_s=llm_deadline,
    )
    from schedmate.logparse.failure import diagnose as run
    from schedmate.logparse.failure import open_job, site_rules
    from schedmate.logparse.reading import open_log
    from schedmate.report.jobs import show_diagnosis

    with ExitStack() as stack:
        if "-" in logs and len(logs) > 1:
            raise UsageError("- stands for standard input alone; give files or -, not both.")
        stack.enter_context(bounded(f"the log {logs[0]}", settings.memory_mb))
        stack.enter_context(site_rules(settings.rules_folder))
        log = stack.enter_context(open_job(logs, follow_links=follow_links))
        usual = [stack.enter_context(open_log(path)) for path in healthy or ()]
        several = (
            options.mixed_logs_warnings(logs[0], log, follow_links=follow_links)
            if len(logs) == 1
            else []
        )
        if as_json:
            log.warnings += several
        else:  # before the verdict that it puts in doubt
            for warning in several:
                say(f"warning: {warning}")
        diagnosis = run(
            log,
            node_logs=[stack.enter_context(node_log(one)) for one in node_logs or ()],
            nodes=node_names(nodes or ()),
            healthy=usual,
            locator=locator,
        )
        diagnosis = _with_opinion(diagnosis, log, settings, window, usual)
    if as_json:
        typer.echo(dumps(diagnosis_document(diagnosis), indent=2))
    elif form == "markdown":
        from schedmate.report.markdown import diagnosis_markdown

        typer.echo(diagnosis_markdown(diagnosis), nl=False)
    else:
        show_diagnosis(diagnosis, Screen(sys.stdout))
    options.write_page(html, "diagnose", ", ".join(logs), partial(_show_whole, diagnosis))
    if exit_code and diagnosis.error_type != "none":
        raise typer.Exit(FAILED_JOB)


def _show_whole(diagnosis: Diagnosis, screen: Screen) -> None:
    """The diagnosis with its warnings, which a terminal gets apart."""
    from schedmate.report.jobs import show_diagnosis

    show_diagnosis(diagnosis.model_copy(update={"warnings": []}), screen)
    for warning in diagnosis.warnings:
        screen.line(warning, label="Note: ")


def node_log(text: str) -> Log:
    """The log of a node, named before it (`gpu-7=dmesg.txt`) or not."""
    from schedmate.logparse.reading import open_log

    node, named, path = text.partition("=")
    if not named or os.path.exists(text) or host_name(node) is None:  # noqa: PTH110 - may be odd
        return open_log(text)
    log = open_log(path)
    for file in log.files:
        file.node = node
    return log


def node_names(nodes: Iterable[str]) -> list[str]:
    """The names in lists of nodes as Slurm writes them."""
    from schedmate.logparse.triage.targets import expand_hosts

    names = [name for text in nodes for name in expand_hosts(text)]
    if nodes and not names:
        raise UsageError("--nodes names no node; give names as the scheduler has, as gpu[01-04].")
    return names


def _with_opinion(
    diagnosis: Diagnosis, log: Log, settings: Settings, window: int, healthy: Sequence[Log]
) -> Diagnosis:
    """What a language model makes of a failure that the rules left open, if one is named."""
    from schedmate.llm import open_llm

    llm = None if settings.mode == "static" else open_llm(settings)
    if llm is None:
        return diagnosis
    from schedmate.logparse.failure.opinion import consult, is_open

    try:
        if is_open(diagnosis):
            options.announce_model(settings, "the log")
        return consult(diagnosis, log, llm, window=window, healthy=healthy)
    finally:
        llm.close()


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, object]:
    """The JSON document `schedmate.diagnose/v1`."""
    return {"schema": SCHEMA, **diagnosis.model_dump(mode="json")}


# `schedmate rules`: the rules of the Failure Handler, and their test.


RULES_SCHEMA = "schedmate.rules/v1"

rules = typer.Typer(help="List and test the failure rules.", no_args_is_help=True)


def _rules_in_use() -> RuleSet:
    """The bundled rules and those of the site that the settings and packages name."""
    from schedmate.logparse.failure.rules import load_rules, site_rules
    from schedmate.settings import load_settings

    with site_rules(load_settings().rules_folder):
        return load_rules()


@rules.command("list")
def list_rules(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD", help="Only rules with this word in them.", show_default=False
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the rules with their patterns, meanings and sources."""
    every = _rules_in_use().rules
    rules = every
    if word is not None:
        rules = [rule for rule in rules if word.lower() in rule.model_dump_json().lower()]
        if not rules:
            rule_names = {part for rule in every for part in (rule.id, rule.area)}
            words = {word for name in rule_names for word in name.split("-")}
            say(
                f"no rule has {word!r} in it{did_you_mean(word, sorted(rule_names | words)) or '.'}"
            )
    if as_json:
        entries = [rule.model_dump(mode="json") for rule in rules]
        typer.echo(dumps({"schema": RULES_SCHEMA, "rules": entries}, indent=2))
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


@rules.command("test")
def check_rules(
    line: Annotated[
        str | None,
        typer.Argument(
            metavar="LINE", help="Show the rule that matches this line.", show_default=False
        ),
    ] = None,
) -> None:
    """Check the rules' examples, or show which rule matches a line.

    Exits with 1 when an example fails, or when no rule matches the line.
    """
    from schedmate.logparse.failure.rules import failed_examples, match_text

    screen = Screen(sys.stdout)
    rules = _rules_in_use()
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
