"""The recipes of a justfile, read without running just: variables, parameters, dependencies."""

from __future__ import annotations

import re
import shlex

from schedmate.agent.values import Origin, Value, lifted

_VARIABLE = re.compile(r"(?:export\s++)?([\w-]++)\s*+:=\s*+(.*)")
_RECIPE = re.compile(r"@?([A-Za-z_][\w-]*+)((?:\s[^:]*+)?):(?!=)\s*+(.*)")
_PARAMETER = re.compile(r"(?<![*+$])([*+$]*+)([\w-]++)(?:=(\"[^\"]*\"|'[^']*'|[^\s]+))?")
PARAMETERS = "__parameters__"


def parse_justfile(text: str, file: str) -> tuple[dict[str, Value], dict[str, str]]:
    """Recipes by name, as tasks with `cmds`, `deps` and their parameters; and the variables."""
    recipes: dict[str, Value] = {}
    variables: dict[str, str] = {}
    commands: list[Value] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        if raw[:1] in (" ", "\t"):
            _add(commands, raw.strip(), Origin("script", file, number))
            continue
        line = raw.split(" #")[0].rstrip()
        if not line or line[0] in "#[":
            continue
        commands = []
        if variable := _VARIABLE.fullmatch(line):
            quoted = re.fullmatch(r"([\"'])(.*)\1", variable[2])
            if quoted:
                variables[variable[1]] = quoted[2]
        elif recipe := _RECIPE.fullmatch(line):
            before = [Value(re.sub(r"[()]", "", word)) for word in recipe[3].split()]
            commands = []
            recipes[recipe[1]] = Value(
                {
                    "cmds": Value(commands),
                    "deps": Value(before),
                    PARAMETERS: lifted(_PARAMETER.findall(recipe[2])),
                }
            )
    return recipes, variables


def _add(commands: list[Value], line: str, origin: Origin) -> None:
    """A line of a recipe; one that is continued, or stands in a script, is one with the last."""
    if not line:
        return
    before = commands[-1].text if commands else None
    if before is not None and (before.endswith("\\") or before.startswith("#!")):
        commands[-1] = Value(f"{before}\n{line}", commands[-1].origin)
    else:
        commands.append(Value(line if line.startswith("#!") else line.lstrip("@-"), origin))


def bind(task: Value, arguments: list[str]) -> dict[str, str] | None:
    """The parameters of a recipe with the words after its name; None where it declares none."""
    declared = task.data.get(PARAMETERS) if isinstance(task.data, dict) else None
    if declared is None or not declared.data:
        return None
    words, bound = list(arguments), {}
    for item in declared.elements or ():
        kind, name, default = item.plain()
        if "*" in kind or "+" in kind:
            bound[name] = shlex.join(words) if words else default.strip("\"'")
            words = []
        elif words:
            bound[name] = words.pop(0)
        elif default:
            bound[name] = default.strip("\"'")
    return bound
