"""What a loop's body says of training: whether it takes steps, and over what."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from schedmate.agent.interp.syntax import last_name, nodes, variable

_TRAINING_STEP = re.compile(
    r"^(backward|step|minimize|apply_gradients|update|learn)$|[Tt]rain|"
    r"^update_(params?|parameters|policy|policies|model|networks?|weights|agents?|actor|critic)|"
    r"^(ppo|grpo|sac|td3|dqn|policy|actor|critic|agent|model)_update$"
)
"""Functions that take a step of training."""
_OTHER_STEP = re.compile(r"sampler$|(^|[._])envs?$|simulator$")
"""Objects that draw samples or simulate, whose steps are no training's."""
_STEPS = frozenset(["backward", "minimize", "apply_gradients"])
"""Methods that do so, whatever their object."""


def trains(body: Sequence[ast.stmt], simulated: bool = False) -> bool:
    """Whether a loop body looks like training: it steps an optimiser or calls a train function.

    With `simulated`, stepping an environment counts too.
    """
    for call in nodes(body, ast.Call):
        name = last_name(call.func) or ast.unparse(call.func).rpartition(".")[2]
        if _runs_session(call.func):
            return True
        if _TRAINING_STEP.search(name):
            owner = ast.unparse(call.func).rpartition(".")[0]
            if simulated or name != "step" or not _OTHER_STEP.search(owner):
                return True
    return False


def _runs_session(func: ast.expr) -> bool:
    """Whether this is `sess.run(...)`, TensorFlow 1's way to take a step."""
    if not isinstance(func, ast.Attribute) or func.attr != "run":
        return False
    return "sess" in (last_name(func.value) or "").lower()


def steps_over_data(body: Sequence[ast.stmt]) -> bool | None:
    """Whether a loop that itself takes steps takes them in a loop over data inside it.

    None where it takes none itself.
    """
    steps = {
        call
        for call in nodes(body, ast.Call)
        if variable(call.func) is None
        and (last_name(call.func) in _STEPS or _runs_session(call.func))
    }
    if not steps:
        return None
    return any(
        not re.search(r"range\(", ast.unparse(inner.iter))
        and any(node in steps for node in ast.walk(inner))
        for inner in nodes(body, ast.For)
    )
