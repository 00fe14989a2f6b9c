"""An executor that runs the site's own commands, for schedulers without an adapter.

`commands` of recovery.yaml lists them; they are run without a shell, and only validated names are
filled in. Their output is one line for each node or job:

    nodes             gpu-7 train,debug up           (NODE PARTITION,... STATE [REASON ...];
                      gpu-8 train drained disk full   STATE is up, drained or down)
    job {job}         0 FAILED                       (RUN STATE, as of the job's last run)
    drain {node} {mark} {reason}, resume {node} {mark}, requeue {job} {exclude} {run},
    hold {job}, release {job}, notify {to} {job} {text}      exit code 0, or a sentence and another
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from schedmate.base.running import complaint, run
from schedmate.base.terminal import clean
from schedmate.cluster.actions import Action, Drain, Hold, Notify, Release, Requeue, Resume
from schedmate.cluster.adapter import Answer, ExecutorError, Finding, Ran
from schedmate.cluster.claims import claim
from schedmate.cluster.recovery.configuration import Commands
from schedmate.cluster.recovery.diagnosing import fill_command
from schedmate.cluster.recovery.guards import Inventory

LONGEST_OUTPUT = 16 << 20
"""Bytes of a command's output that are kept; the rest is read and dropped."""
ENDED = frozenset({"FAILED", "COMPLETED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "OUT_OF_MEMORY"})


class LocalExecutor:
    """Takes actions through commands on this machine (`executor.Executor` and `Runner`)."""

    name = "local"

    def __init__(self, commands: Commands, folder: Path | None = None) -> None:
        """`folder` has the state of running commands, so that none is repeated while one that a
        killed executor had started still runs."""
        self.commands, self._folder = commands, folder

    # -- looking ---------------------------------------------------------

    def inventory(self) -> Inventory:
        """The nodes as the command `nodes` lists them now."""
        return Inventory.of(self._nodes())

    def probe(self, action: Action) -> Finding:
        """Look the target up with the commands `nodes` and `job`."""
        if isinstance(action, Drain | Resume):
            return self._probe_node(action)
        if isinstance(action, Requeue | Hold | Release):
            return self._probe_job(action)
        if isinstance(action, Notify):
            if self.commands.notify is None:
                why = "recovery.yaml names no command `notify`; it is only recorded"
                return Finding("moot", why)
            return Finding("ready")
        return Finding("changed", f"this site has no command for {action.kind}")

    def _probe_node(self, action: Drain | Resume) -> Finding:
        reasons = {node: reason for node, _, reason in self._nodes()}
        if action.node not in reasons:
            return Finding("changed", f"the cluster has no node {action.node}")
        reason = reasons[action.node]
        ours = reason == action.reason
        seen = f"{action.node} is " + (f"out of service: {reason}" if reason else "in service")
        if isinstance(action, Drain):
            return Finding("done" if ours else "ready" if reason is None else "moot", seen)
        return Finding("ready" if ours else "moot" if reason is None else "changed", seen)

    def _probe_job(self, action: Requeue | Hold | Release) -> Finding:
        words = self._output("job", job=action.job).split()
        if len(words) < 2 or not words[0].isdigit():
            raise ExecutorError(f"the command job said {clean(words)!r}, not RUN STATE.")
        run, state = int(words[0][:9]), words[1].upper()
        seen = f"run {run} of job {action.job} is {state}"
        if isinstance(action, Requeue):
            if run == action.run:
                # requeued already, by a scheduler without run numbers
                return Finding("moot" if state == "PENDING" else "ready", seen)
            return Finding("done" if run == action.run + 1 else "changed", seen)
        wanted, opposite = ("HELD", "PENDING") if isinstance(action, Hold) else ("PENDING", "HELD")
        return Finding({wanted: "done", opposite: "ready"}.get(state, "changed"), seen)  # type: ignore[arg-type]

    def _nodes(self) -> Iterator[tuple[str, tuple[str, ...], str | None]]:
        for line in self._output("nodes").splitlines():
            if not line.strip():
                continue
            words = line.split(None, 3)
            if len(words) < 3 or words[2] not in ("up", "drained", "down"):
                raise ExecutorError(
                    f"the command nodes said {clean(line, 80)!r}, not NODE PARTITION STATE."
                )
            node, partitions, state = words[:3]
            reason = words[3].strip() if len(words) > 3 else ""
            yield node, tuple(partitions.split(",")), None if state == "up" else reason or state

    def _output(self, name: str, **words: str) -> str:
        command = getattr(self.commands, name)
        if command is None:
            raise ExecutorError(f"recovery.yaml names no command {name}.")
        ran = run_command(fill_command(command, **words), self.commands.timeout)
        if ran.exit_code != 0:
            problem = ran.detail or clean(ran.output[-300:]) or f"exit code {ran.exit_code}"
            raise ExecutorError(f"the command {name} failed: {problem}")
        return ran.output

    # -- acting ----------------------------------------------------------

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """Run the site's command; if it fails, a probe decides whether it had an effect."""
        command = getattr(self.commands, action.kind, None)
        if command is None:
            return Answer("failed", f"recovery.yaml names no command {action.kind}")
        words = fill_command(command, key=key, **_words_of_action(action))
        with ExitStack() as stack:
            claims = []
            if self._folder is not None:
                claims.append(stack.enter_context(claim(self._folder, f"{action.kind} {key}")))
            ran = run_command(words, min(timeout_s, self.commands.timeout), claims)
        detail = ran.detail or clean(ran.output.strip()[-300:])
        if ran.exit_code == 0:
            return Answer("done", detail)
        if ran.exit_code is None:
            return Answer("unknown", detail)
        if isinstance(action, Notify):
            return Answer("failed", detail or f"exit code {ran.exit_code}")
        finding = self.probe(action)
        if finding.state == "done":
            return Answer("done", f"{finding.detail}, although its command reported: {detail}")
        return Answer("failed", detail or f"exit code {ran.exit_code}")

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """Run a diagnostic's command here; `{node}` and `{nodes}` in it are the nodes to test."""
        return run_command(command, timeout_s)


def _words_of_action(action: Action) -> dict[str, str]:
    if isinstance(action, Drain | Resume):
        return {"node": action.node, "mark": action.mark, "reason": action.reason}
    if isinstance(action, Requeue):
        return {"job": action.job, "run": str(action.run), "exclude": ",".join(action.exclude)}
    if isinstance(action, Hold | Release):
        return {"job": action.job}
    if isinstance(action, Notify):
        return {"to": action.to, "job": action.job or "", "text": action.text}
    return {}


def run_command(command: tuple[str, ...], timeout_s: float, held: Sequence[int] = ()) -> Ran:
    """Run a command in a new session, and kill all of it at the time limit.

    It inherits the descriptors `held`.
    """
    try:
        done = run(
            command, timeout_s=timeout_s, most=LONGEST_OUTPUT, drop=True, together=True, held=held
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Ran(127, f"{command[0]}: {reason}")
    text = done.output.decode("utf-8", "replace")
    if done.cut_off:
        return Ran(None, text, complaint(command[0], done.cut_off, timeout_s, LONGEST_OUTPUT))
    return Ran(done.code, text)
