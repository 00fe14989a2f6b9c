"""What a loop's body says of training: whether it takes steps, and over what."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

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
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = _name(node.func)
                if _runs_session(node.func):
                    return True
                if _TRAINING_STEP.search(name):
                    owner = ast.unparse(node.func).rpartition(".")[0]
                    if simulated or name != "step" or not _OTHER_STEP.search(owner):
                        return True
    return False


def _name(func: ast.expr) -> str:
    """The last part of what is called, as it is written."""
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ast.unparse(func).rpartition(".")[2]


def _runs_session(func: ast.expr) -> bool:
    """Whether this is `sess.run(...)`, TensorFlow 1's way to take a step."""
    if not isinstance(func, ast.Attribute) or func.attr != "run":
        return False
    owner = func.value
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return "sess" in name.lower()


def steps_over_data(body: Sequence[ast.stmt]) -> bool | None:
    """Whether a loop that itself takes steps takes them in a loop over data inside it.

    None where it takes none itself.
    """
    steps = {
        node
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr in _STEPS or _runs_session(node.func))
    }
    if not steps:
        return None
    return any(
        isinstance(inner, ast.For)
        and not re.search(r"range\(", ast.unparse(inner.iter))
        and any(node in steps for node in ast.walk(inner))
        for statement in body
        for inner in ast.walk(statement)
    )
