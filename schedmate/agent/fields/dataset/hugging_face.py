"""Whether the trainers of Hugging Face evaluate, by their arguments."""

from __future__ import annotations

import re

from schedmate.agent.fields.leaves import Setting
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin, Value


def hugging_face(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """The Hugging Face trainer evaluates when told to and given an evaluation dataset."""
    trainers = [e for e in trace.calls if re.search(r"(^|\.)(\w*Trainer)$", e.path)
                and e.path.startswith(("transformers.", "trl."))]  # fmt: skip
    own = [e for e in trace.calls if e.cls is not None
           and any(base.startswith(("transformers.", "trl.")) and base.endswith("Trainer")
                   for base in e.cls.external_bases())]  # fmt: skip
    if not trainers and not own:
        return _arguments_without_trainer(settings)
    event = (trainers or own)[-1]
    given = event.kwargs.get("eval_dataset")
    if given is None and any("eval_dataset" in e.kwargs for e in trainers + own):
        given = next(e.kwargs["eval_dataset"] for e in trainers + own if "eval_dataset" in e.kwargs)
    flags: dict[str, Value] = {}
    for setting in settings:
        if setting.path[-1] in ("do_eval", "eval_strategy", "evaluation_strategy"):
            flags.setdefault(setting.path[-1], setting.value)
    for args_event in trace.calls:
        if args_event.path.endswith(("TrainingArguments", "Config")):
            for key in ("do_eval", "eval_strategy", "evaluation_strategy"):
                if key in args_event.kwargs:
                    flags[key] = args_event.kwargs[key]
    asked = any(
        value.data is True or (isinstance(value.data, str) and value.data not in ("no", "none"))
        for value in flags.values()
    )
    if given is not None and given.data is None:
        return False
    if not asked and (flags or given is None):
        return False
    return Origin("code", event.site.file, event.site.line)


def _arguments_without_trainer(settings: list[Setting]) -> Origin | bool | None:
    """What Hugging Face training arguments say where their trainer was not reached."""
    keys = {setting.key: setting for setting in reversed(settings) if setting.owner != "arguments"}
    if not {"numtrainepochs", "perdevicetrainbatchsize"} <= keys.keys():
        return None
    for name in ("doeval", "evalstrategy", "evaluationstrategy"):
        setting = keys.get(name)
        if setting is not None and setting.value.data not in (False, None, "no", "none"):
            origin = setting.value.origin
            return origin if origin is not None else Origin("config")
    return False
