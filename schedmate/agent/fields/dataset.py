"""`dataset_config.train` and `valid`: what the run trains and validates on.

Chosen among what settings name and what calls open; where the program does not name it, the launch
and its files' names give hints.
"""

from __future__ import annotations

import re
from dataclasses import replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    begins_known,
    best_candidate,
    by_rule,
    is_ambiguous,
    is_known,
    is_launched,
    pattern_of,
)
from schedmate.agent.fields.dataset_calls import uses_of_call
from schedmate.agent.fields.dataset_names import CLASS_NAME, Use, as_written_points, dataset_of_path
from schedmate.agent.fields.dataset_settings import (
    bare_place,
    datasets_from_components,
    datasets_from_loaders,
    datasets_from_sections,
    datasets_from_settings,
    validation_place,
)
from schedmate.agent.fields.settings import Setting, normal_name
from schedmate.agent.fields.validation import (
    is_handed_on,
    is_switched_off,
    is_test_data_unread,
    validates,
)
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Origin, Unknown

_OF_SAMPLES = pattern_of("dataset.of_samples")
"""Functions that measure how much a generator's samples are like the data."""
_HELD_OUT = re.compile(r"(val|valid|validation|test)_(ds|dl|data|dataset|loader|dataloader)$")
OTHER_SPLIT = "another split of the training set"
SPLIT = "split"
"""Rule: what is validated on goes by the training set's name."""


def find_datasets(
    trace: Trace,
    settings: list[Setting],
    plan: LaunchPlan,
    model: str = "",
) -> tuple[Candidate | None, Candidate | None]:
    """The training and the validation dataset; None where the code does not say.

    `model` is the model's name: a folder of that name is the program's, not the data's.
    """
    weighed: list[Candidate] = []
    train, valid = _choose_datasets(trace, settings, plan, model, weighed)
    return (
        None if train is None else replace(train, considered=weighed),
        None if valid is None else replace(valid, considered=weighed),
    )


def _choose_datasets(
    trace: Trace,
    settings: list[Setting],
    plan: LaunchPlan,
    model: str,
    weighed: list[Candidate],
) -> tuple[Candidate | None, Candidate | None]:
    """The two datasets; all that were considered for either go into `weighed`."""
    no_test = is_test_data_unread(trace)
    uses = [
        use
        for event in trace.calls
        for use in uses_of_call(event)
        if not (use.file and model and normal_name(str(use.candidate.data)) == normal_name(model))
        # a test set that is opened and never handed on is not evaluated by this run
        if use.evaluates is not True
        or (
            not (no_test and "test" in event.target)
            and is_handed_on(trace, event.result and event.result.data)
        )
    ]
    from_settings = datasets_from_settings(settings)
    _files_of_settings(uses, [*from_settings, *datasets_from_settings(settings, evaluates=True)])
    from_settings.extend(
        by_rule("section", [*datasets_from_sections(settings), *datasets_from_components(settings)])
    )
    weighed += [*by_rule("opened", (use.candidate for use in uses)), *from_settings]
    opened = [use.candidate for use in uses if use.evaluates is not True]
    train = best_candidate(
        [*filter(_launched, from_settings), *opened, *from_settings]
    )  # of equals, the launch's own word
    loader = datasets_from_loaders(settings, "train")
    if loader is not None and (
        train is None
        or (
            loader.score >= train.score
            and not (_tells(train) and not is_known(str(loader.data), "datasets"))
        )
    ):
        train = loader
    asked = (
        [s for s in settings if not s.key.startswith("test")] if _holds_both(trace) else settings
    )
    explicit_valid = best_candidate(datasets_from_settings(asked, evaluates=True))
    if explicit_valid is not None and _launched(explicit_valid):
        explicit_valid.score += prior.validation["launched"]
    valid = best_candidate([u.candidate for u in uses if u.evaluates is True])
    valid_loader = datasets_from_loaders(settings, "val|valid|validation|eval|dev")
    weighed += by_rule("section", [c for c in (loader, valid_loader) if c is not None])
    if valid_loader is None and valid is None and validates(trace, settings):
        valid_loader = datasets_from_loaders(settings, "test")
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
    if train is None or train.score <= as_written_points() + prior.dataset["says little"]:
        # a path none of whose parts names a dataset, if anything
        train = find_hint(settings, plan, train) or train or bare_place(settings)
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
    if is_switched_off(settings):
        return False
    validation = validates(trace, settings)
    return validation_place(settings) if validation is None and not trace.calls else validation


def _holds_both(trace: Trace) -> bool:
    """Whether the program holds validation data beside the test data: `val_ds` and `test_ds`."""
    assigned_splits = {
        match[1].lower() for name in trace.assigned if (match := _HELD_OUT.match(name))
    }
    return "test" in assigned_splits and len(assigned_splits) > 1


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


def _files_of_settings(uses: list[Use], from_settings: list[Candidate]) -> None:
    """Name what is opened by the setting it is put together from: `ppi` and not `ppi-G`.

    Only what was opened as a file is renamed. Of the same name, the setting is the better evidence,
    unless the code itself says it (`CIFAR10(...)`) and the launch does not.
    """
    named = {str(candidate.data).lower(): candidate for candidate in from_settings}
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
    return _launched(train) and train.score > as_written_points() + prior.dataset["says little"]


# What names the dataset where the program does not: its launch and its files' names.
#
# Words only, weaker the further they are from the launch; nothing in them is obeyed.


_NOT_DATA = pattern_of("dataset.not_data")
"""Settings whose words are not about the data that this run trains on."""
_RUN_NAME = pattern_of("dataset.run_name")
"""Settings that name the run or its results, often after its data."""
_PART = re.compile(r"[A-Za-z]+|\d+")
LAUNCH = "name in the launch"
"""The rule of words of the launch that are no dataset's setting."""


def find_hint(
    settings: list[Setting],
    plan: LaunchPlan,
    path: Candidate | None = None,
) -> Candidate | None:
    """The dataset by what stands around the program; None when nothing names one alone.

    `path` is what the program reads, where that is known although it has no name.
    """
    return _from_launch(settings, plan, path is None) or _from_files(settings, plan)


def _from_launch(settings: list[Setting], plan: LaunchPlan, any_name: bool) -> Candidate | None:
    """A well-known dataset in what the user gave for this launch: `--dump-root=data/cmu_arctic`."""
    candidates, note = [], "a name in the launch"
    for setting in settings:
        text, origin = setting.value.data, setting.value.origin
        launched = origin is not None and origin.source in ("command", "script", "environment")
        if launched and isinstance(text, str) and not _NOT_DATA.search(setting.path[-1]):
            run = _RUN_NAME.search(setting.path[-1])
            name = _in_path(text) or (None if run or not any_name else _below_data(text))
            if name is not None:
                score = prior.hint["name of the run" if run else "option of the launch"]
                candidates.append(Candidate(name, origin, score, note, LAUNCH))
    before = ""
    for value in [*plan.argv, *plan.facts.values()]:
        text = value.data.text if isinstance(value.data, Unknown) else value.data
        if isinstance(text, str):
            # a flag's word is among the settings, but for what the machine knows: `${IMAGENET}`
            is_other_flag = before.startswith("-") and not (
                text is not value.data
                and not _NOT_DATA.search(before)
                and not _RUN_NAME.search(before)
            )
            name = None if is_other_flag or text.startswith("-") else _in_path(text)
            if name is not None:
                score = prior.hint["name of the run"]
                candidates.append(Candidate(name, value.origin, score, note, LAUNCH))
            before = text if "=" not in text else ""
    return best_candidate(candidates)


def _below_data(text: str) -> str | None:
    """`cmu` of `./data/cmu/dump`: the folder or file right below one for data."""
    below = re.search(r"(?:^|/)(?:data|datasets?|corpora)/([^/]+)", text)
    return dataset_of_path(below[1]) if below else None


def _from_files(settings: list[Setting], plan: LaunchPlan) -> Candidate | None:
    """A well-known dataset in the name of the script, configuration or program that runs."""
    files = [
        origin.file
        for setting in settings
        if (origin := setting.value.origin) is not None
        and origin.file
        and origin.source in ("script", "config")
    ]
    for file in dict.fromkeys([*files, plan.cwd, plan.entry or ""]):
        name = _in_path(file)
        if name is not None:
            return Candidate(
                name, Origin("code", file, 1), prior.hint["file name"], "named like it", "file name"
            )
    return None


def _in_path(text: str) -> str | None:
    """The well-known dataset among a path's words, from its end; None for an ambiguous word."""
    for component in reversed(re.split(r"[/\\=:,\s]+", text)[-6:]):
        parts = list(_PART.finditer(component))
        for length in (4, 3, 2, 1):
            for start in range(len(parts) - length + 1):
                end = parts[start + length - 1].end()
                word = component[parts[start].start() : end]
                if len(word) < 8 and re.match(r"[a-z\d]", component[end:]):
                    continue  # `wmt32` of `wmt32k`
                if len(word) > 2 and begins_known(word) and not is_ambiguous(word):
                    return word
    return None
