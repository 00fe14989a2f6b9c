"""The result of reading a launch command."""

from __future__ import annotations

from dataclasses import dataclass, field

from schedmate.agent.values import Value


@dataclass(slots=True)
class LaunchPlan:
    """What a launch command runs, and with what.

    - `entry`: the Python file that runs, relative to the repository root; None when nothing in
      the repository does.
    - `module`: its dotted name when it is run with `-m` or as a console script.
    - `function`: the function a console script calls; None for a file run as `__main__`.
    - `argv`: the arguments after the entry; a token that cannot be known holds an `Unknown` whose
      text is the token with the unknown parts left as written (`--lr=$LR`).
    - `env`: variables set by prefixes, `export` and launchers.
    - `cwd`: the working directory relative to the repository root.
    - `launchers`: the programs between the command and the entry, outermost first.
    - `facts`: what launchers, `#SBATCH` lines and the launch configuration say. Counts: `gpus`
      and `procs` (totals), `nodes`, `procs_per_node`, `gpus_per_node`, `gpus_per_task`,
      `tasks`, `tasks_per_node` (Slurm),
      `cpus_per_task`, `zero_stage`, `gradient_accumulation_steps`. `time_limit_s` [s]. Text:
      `gpu_type`, `job_name`, `partition`, `precision`, `deepspeed_config`, `accelerate_config`.
    - `console`: the third-party program that runs when it is not one the repository declares.
    - `complete`: whether the command and its scripts were followed to their end.
    - `before`: the programs of the repository that the same command runs first, in order.
    """

    entry: str | None = None
    module: str | None = None
    function: str | None = None
    argv: list[Value] = field(default_factory=list)
    env: dict[str, Value] = field(default_factory=dict)
    cwd: str = "."
    launchers: list[str] = field(default_factory=list)
    facts: dict[str, Value] = field(default_factory=dict)
    console: str | None = None
    warnings: list[str] = field(default_factory=list)
    complete: bool = True
    before: list[LaunchPlan] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """One Python program or console script that a command starts.

    `sets`: variables its launchers set, to a text or to the fact named after a `$`.
    `problem` says why it cannot be described (its file is missing); `certain` is False in a branch
    of which it is not known whether it is taken.
    """

    plan: LaunchPlan
    file: str | None
    line: int
    sets: dict[str, str] = field(default_factory=dict)
    certain: bool = True
    problem: str | None = None

    @property
    def program(self) -> str:
        """What runs, in a word."""
        return self.plan.entry or self.plan.console or self.plan.module or "?"

    @property
    def where(self) -> str:
        """Where it is started."""
        return f"{self.file}:{self.line}" if self.file else "the command"
