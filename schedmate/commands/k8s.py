"""`schedmate k8s`: schedmate beside a Kubernetes cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.agent_plan import show_plan
from schedmate.commands.agents import (
    BoundsOption,
    DryRunOption,
    OnceOption,
    StateOption,
    UndoOption,
    run_agent,
)
from schedmate.commands.k8s_doctor import doctor
from schedmate.commands.k8s_logs import logs
from schedmate.commands.k8s_setup import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    opened,
)
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.errors import InputError, UsageError
from schedmate.terminal import say

if TYPE_CHECKING:
    from schedmate.schedulers.live.report import Pass

SCHEMA = "schedmate.kubernetes-plan/v1"

app = typer.Typer(help="Run schedmate's agent beside a Kubernetes cluster.", no_args_is_help=True)


@app.command()
def agent(
    once: OnceOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    namespace: NamespaceOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of Prometheus metrics, such as 0.0.0.0:9095."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate jobs labelled schedmate.io/watch=true, and diagnose failed ones.

    Without --bounds it changes nothing but its Lease. Of several agents, only the holder of the
    Lease acts. With --json each pass is a line, with --once a document.

    Examples:

      schedmate k8s agent --once --dry-run

      schedmate k8s agent --bounds /etc/schedmate/bounds.yaml --metrics 0.0.0.0:9095
    """
    with ExitStack() as stack:
        setup = stack.enter_context(
            opened(
                *(bounds, state, history),
                kubeconfig=kubeconfig,
                context=context,
                namespaces=namespace,
                dry_run=dry_run,
            )
        )

        seen: Callable[[Pass], object] | None = None
        if metrics is not None:
            from schedmate.commands.k8s_metrics import AgentMetrics

            counting = AgentMetrics(metrics, setup.adapter, setup.goes_on)
            seen = stack.enter_context(counting).seen
        run_agent(setup, once=once, undo=undo, as_json=as_json, seen=seen)


@app.command()
def plan(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="NAMESPACE/KIND/NAME, such as team-a/job/train.")
    ],
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the logs of a job whose pods failed and show a plan; change nothing.

    With recovery in the bounds, the plan is the one that the agent would propose.
    """
    from schedmate.schedulers.live.adapter import FAILURES
    from schedmate.schedulers.live.executor import ExecutorError
    from schedmate.schedulers.live.kubernetes.marks import parts_of

    try:
        namespace = parts_of(job)[0]
    except ExecutorError as error:
        raise UsageError(str(error)) from None
    with opened(
        bounds,
        state,
        history,
        kubeconfig=kubeconfig,
        context=context,
        namespaces=[namespace],
        dry_run=True,
    ) as setup:
        ended = setup.adapter.ended(0.0)
        runs = [run for run in ended if run.job == job and run.record.state in FAILURES]
        if not runs:
            raise InputError(
                f"no run of {job} has failed whose pods can still be seen; it needs the label "
                "schedmate.io/watch=true, and `kubectl get pods` shows what is left."
            )
        show_plan(setup, runs[-1], time.time(), SCHEMA, as_json=as_json)


@app.command()
def undo(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Id of a recovery plan.")],
    bounds: BoundsOption = None,
    state: StateOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Undo a plan: remove schedmate's taint, and no other, from its node.

    Evicted pods stay where they are now. The agent may keep running meanwhile.
    """
    from schedmate.schedulers.live.executor import ExecutorError

    with opened(
        bounds, state, None, kubeconfig=kubeconfig, context=context, watches=False
    ) as setup:
        if setup.recovery is None:
            raise UsageError("the bounds name no recovery.yaml; give them with --bounds.")
        result = setup.recovery.undo(plan)
        if result.stopped is not None:
            raise ExecutorError(f"plan {plan}: {result.stopped}: {result.detail}")
        say(
            f"plan {plan} is {result.status.state}."
            + (f" {result.detail}." if result.detail else "")
        )


app.command()(doctor)
app.command()(logs)
