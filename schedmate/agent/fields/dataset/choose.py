"""The training and the validation dataset of a run, chosen among all that was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import About
from schedmate.agent.fields.candidates import Candidate, best, by_rule, is_launched
from schedmate.agent.fields.dataset import hints
from schedmate.agent.fields.dataset.components import from_components
from schedmate.agent.fields.dataset.keys import validation_place
from schedmate.agent.fields.dataset.named import bare_place, from_settings
from schedmate.agent.fields.dataset.opened import uses_of
from schedmate.agent.fields.dataset.roles import CLASS_NAME, Use, as_written
from schedmate.agent.fields.dataset.sections import from_loaders, from_sections
from schedmate.agent.fields.dataset.validates import handed_on, left_unread, switched_off, validates
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.words import is_known
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Origin

_OF_SAMPLES = re.compile(
    r"(compute|calc|calculate|get|eval|evaluate)_(feature_stats|fid|kid|is$|inception)"
)
"""Functions that measure how much a generator's samples are like the data."""
_HELD = re.compile(r"(val|valid|validation|test)_(ds|dl|data|dataset|loader|dataloader)$")
OTHER_SPLIT = "another split of the training set"
SPLIT = "split"
"""Rule: what is validated on goes by the training set's name."""


def find(
    trace: Trace,
    settings: list[Setting],
    plan: LaunchPlan,
    said: Sequence[About] = (),
    model: str = "",
) -> tuple[Candidate | None, Candidate | None]:
    """The training and the validation dataset; None where the code does not say.

    `said`, the READMEs, are asked only where the program leaves it open. `model` is the model's
    name: a folder of that name is the program's, not the data's.
    """
    weighed: list[Candidate] = []
    train, valid = _choose(trace, settings, plan, said, model, weighed)
    return (
        None if train is None else replace(train, considered=weighed),
        None if valid is None else replace(valid, considered=weighed),
    )


def _choose(
    trace: Trace,
    settings: list[Setting],
    plan: LaunchPlan,
    said: Sequence[About],
    model: str,
    weighed: list[Candidate],
) -> tuple[Candidate | None, Candidate | None]:
    """The two datasets; all that were considered for either go into `weighed`."""
    no_test = left_unread(trace)
    uses = [
        use
        for event in trace.calls
        for use in uses_of(event)
        if not (use.file and model and normal(str(use.candidate.data)) == normal(model))
        if not (use.file and hints.is_projects(use.candidate, said))
        # a test set that is opened and never handed on is not evaluated by this run
        if use.evaluates is not True
        or (
            not (no_test and "test" in event.target)
            and handed_on(trace, event.result and event.result.data)
        )
    ]
    told = from_settings(settings)
    _files_of_settings(uses, [*told, *from_settings(settings, evaluates=True)])
    told.extend(by_rule("section", [*from_sections(settings), *from_components(settings)]))
    told = [candidate for candidate in told if not hints.is_projects(candidate, said)]
    weighed += [*by_rule("opened", (use.candidate for use in uses)), *told]
    opened = [use.candidate for use in uses if use.evaluates is not True]
    train = best([*filter(_launched, told), *opened, *told])  # of equals, the launch's own word
    loader = from_loaders(settings, "train")
    if loader is not None and (
        train is None
        or (loader.score >= train.score and not (_tells(train) and not _tells_well(loader)))
    ):
        train = loader
    asked = [s for s in settings if not s.key.startswith("test")] if _apart(trace) else settings
    explicit_valid = best(from_settings(asked, evaluates=True))
    if explicit_valid is not None and _launched(explicit_valid):
        explicit_valid.score += prior.validation["launched"]
    valid = best([u.candidate for u in uses if u.evaluates is True])
    valid_loader = from_loaders(settings, "val|valid|validation|eval|dev")
    weighed += by_rule("section", [c for c in (loader, valid_loader) if c is not None])
    if valid_loader is None and valid is None and validates(trace, settings):
        valid_loader = from_loaders(settings, "test")
        weighed += by_rule("section", [valid_loader] if valid_loader is not None else [])
    if valid_loader is not None and (valid is None or valid_loader.score >= valid.score):
        valid = valid_loader
    if (
        explicit_valid is not None
        and _launched(explicit_valid)
        and valid is not None
        and train is not None
        and valid.data == train.data
    ):
        valid = explicit_valid  # the launch names another set than the one that is trained on
    if explicit_valid is not None and (valid is None or explicit_valid.score >= valid.score):
        valid = explicit_valid
    same = _validates(trace, settings)
    if train is None or train.score <= as_written() + prior.dataset["says little"]:
        # a path none of whose parts names a dataset, if anything
        train = (
            hints.find(settings, plan, said, train, trace.links) or train or bare_place(settings)
        )
    if same is False:
        return train, None
    scheduled = same is None or (isinstance(same, Origin) and same.source != "code")
    if scheduled and explicit_valid is None and any(map(_OF_SAMPLES.search, trace.functions)):
        return train, None  # the data is what generated samples are compared with
    if same is None and valid is not None and valid is not explicit_valid:
        tried = [use for use in uses if use.evaluates is True]
        if tried and valid is not valid_loader and all(use.file for use in tried):
            return train, None  # a file is read, and nothing shows that the model is tried on it
    if valid is None and train is not None and same is not None:
        origin = same if isinstance(same, Origin) else train.origin
        valid = Candidate(
            train.data, origin, train.score + prior.validation["of training"], OTHER_SPLIT, SPLIT
        )
    if valid is not None and train is not None and _is_split(valid, train, explicit_valid, uses):
        valid = Candidate(train.data, valid.origin, valid.score, OTHER_SPLIT, SPLIT)
    return train, valid


def _validates(trace: Trace, settings: list[Setting]) -> Origin | bool | None:
    """`validates`; a library's program, of which nothing is seen, does what it is told."""
    if switched_off(settings):
        return False
    found = validates(trace, settings)
    return validation_place(settings) if found is None and not trace.calls else found


def _apart(trace: Trace) -> bool:
    """Whether the program holds validation data beside the test data: `val_ds` and `test_ds`."""
    held = {match[1].lower() for name in trace.assigned if (match := _HELD.match(name))}
    return "test" in held and len(held) > 1


def _is_split(
    valid: Candidate, train: Candidate, explicit: Candidate | None, uses: list[Use]
) -> bool:
    """Whether what is validated on is another split of whatever the training set is called."""
    opened = train.score - (prior.dataset_class["class name"] if train.rule == CLASS_NAME else 0)
    if valid.score < opened - prior.validation["weaker"]:
        return True  # a weakly named validation file beside a well named dataset
    if valid is explicit:
        return False
    both = any(
        (use.evaluates is False or (use.evaluates is None and not use.file))
        and use.candidate.data == valid.data
        for use in uses
    ) and not (
        # several are trained on, and one of them is what the run is tried on
        valid.score >= train.score and any(use.candidate is train for use in uses)
    )
    better = is_known(str(train.data), "datasets") and not is_known(str(valid.data), "datasets")
    return both or better


def _files_of_settings(uses: list[Use], told: list[Candidate]) -> None:
    """Name what is opened by the setting it is put together from: `ppi` and not `ppi-G`.

    Only what was opened as a file is renamed. Of the same name, the setting is the better evidence,
    unless the code itself says it (`CIFAR10(...)`) and the launch does not.
    """
    named = {str(candidate.data).lower(): candidate for candidate in told}
    longest_first = sorted(named.items(), key=lambda item: -len(item[0]))
    for use in uses:
        data = str(use.candidate.data).lower()
        for name, setting in longest_first:
            ending = "([-_.]|$)" if use.file else "$"
            if len(name) > 2 and re.match(rf"{re.escape(name)}{ending}", data):
                if data == name and use.candidate.source == "code" and not _launched(setting):
                    break
                use.candidate.data, use.candidate.origin = setting.data, setting.origin
                break


def _launched(setting: Candidate) -> bool:
    """Whether this launch names it: on the command line, or in what that leads to."""
    return is_launched(setting.origin)


def _tells(train: Candidate) -> bool:
    """Whether this launch itself names the data, and not only a place that says nothing."""
    return _launched(train) and train.score > as_written() + prior.dataset["says little"]


def _tells_well(loader: Candidate) -> bool:
    return is_known(str(loader.data), "datasets")
