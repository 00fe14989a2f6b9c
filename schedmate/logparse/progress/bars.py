"""Progress bars in the form of tqdm: `Epoch 3:  42%|##  | 42/100 [00:10<00:14, 4.1it/s]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schedmate.logparse.progress.general import read_general
from schedmate.logparse.progress.labels import clock_s, labelled
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.words import about, counts_only, meaning

# In two parts, so that a long line without a bar is passed over in one go: the clock, and the
# counter in front of it.
_CLOCK = re.compile(
    r"\[(?P<elapsed>\d{1,9}:\d\d(?::\d\d)?)(?:<(?P<left>[^,\]]{1,40}))?"
    r"(?:,\s*(?P<value>[\d.]{1,15})(?P<kilo>[kM]?)\s?(?P<unit>s/[^\W\d_]+|[^\W\d_]*/s))?(?P<tail>[^\]]*)\]?"
)
_COUNT = re.compile(
    r"(?:(?P<percent>\d{1,4})%(?:\|[^|]*\|)?\s*(?P<iteration>[\d.]{1,15}[kM]?)/(?P<total>[\d.]{1,15}[kM]?)"
    r"|(?<![\d.])(?P<count>\d{1,15})[^\W\d_]*)\s*[^\W\d_]*\s*$"
)


_PRINTED = re.compile(r"\W*epochs?\W{1,3}\d+\b", re.IGNORECASE)

SAME = 0.01
"""Limit for the relative difference of a bar and its run's summary, beyond rounding to seconds."""
_UNRATED = re.compile(r"\?\s?[^\W\d_]+/s|\?\s?s/")
_MAPPED = "ba/s"
"""The unit in which data sets are prepared; training that uses it is named as such."""

OTHER = Sample("other")
"""What `read_bar` returns for a bar of something other than training."""


def read_bar(text: str) -> Sample | None:
    """The sample stated by a bar; None if there is no bar, `OTHER` if it is not of training."""
    match = _CLOCK.search(text)
    counter = _COUNT.search(text[: match.start()][-400:]) if match is not None else None
    if match is None or counter is None:
        return None
    head = text[: match.start()][-400:][: counter.start()].strip(" :-|")
    kind = about(head[-80:])
    unit = (match["unit"] or "").strip()
    unit = f"it{unit}" if unit == "/s" else unit
    known = meaning("", unit) if unit else None
    if counter["percent"] is None and known is None:
        # a number before a clock in brackets is no bar
        return OTHER if _UNRATED.search(text, match.start()) else None
    if counter["total"] and _number(counter["total"]) <= 1:
        return OTHER  # one thing is downloaded, installed, written
    mapped = unit == _MAPPED and kind is None
    if kind == "other" or mapped or (unit and known is None and not _odd_unit(unit)):
        return OTHER
    sample = Sample("tqdm", named=kind == "training" and not counts_only(head[-80:]))
    for number in [*labelled(head), *labelled(_printed(text, match))]:
        said = meaning(number.key, "")
        if said is not None and said[0] == "epoch" and sample.epoch is None:
            sample.epoch, sample.total_epochs = number.value, number.total
    inside = read_general("step 0, " + match["tail"])
    if inside is not None:
        sample.loss, sample.lr, sample.epoch = inside.loss, inside.lr, sample.epoch or inside.epoch
    count = int(_number(counter["iteration"] or counter["count"]))
    total = int(_number(counter["total"])) if counter["total"] else None
    sample.elapsed_s = clock_s(match["elapsed"])
    left = match["left"]
    if left and re.fullmatch(r"\d{1,9}(?::\d\d)+", left.strip()):
        sample.eta_s = clock_s(left.strip())
    value = _number((match["value"] or "") + (match["kilo"] or ""))
    if _counts_epochs(head, unit):
        sample.epoch, sample.total_epochs = float(count), total
        if known is not None and value > 0:
            sample.epoch_time_s = 1 / value if known[0] == "rate" else value
        sample.elapsed_s = None
    else:
        sample.iteration, sample.total = count, total
        sample.in_epoch = sample.epoch is not None and bool(
            re.search(r"epoch", head, re.IGNORECASE)
        )
        if known is not None and value > 0:
            _take_rate(sample, known[0], value)
        elif inside is not None and not inside.bare and not unit:
            sample.step_time_s = inside.step_time_s
    sample.group = f"tqdm {re.sub(r'[0-9.]+', '0', ' '.join(head[-60:].split()))} {total}"
    return sample


def _take_rate(sample: Sample, quantity: str, value: float) -> None:
    if quantity == "rate":
        sample.step_time_s = 1 / value
    elif quantity == "step_time":
        sample.step_time_s = value
    elif quantity == "samples_per_s":
        sample.samples_per_s = value
        sample.iteration = sample.total = None


def name_by_run_time(groups: Iterable[list[Sample]]) -> None:
    """Mark a bar as training if it took as long as the run, according to its summary."""
    kinds = list(groups)
    runs = [s.run_s for group in kinds for s in group if s.run_s]
    for group in kinds:
        last = group[0]
        if last.reader == "tqdm" and last.elapsed_s and last.iteration == last.total:
            if any(abs(last.elapsed_s - run) <= 1 + SAME * run for run in runs):
                for sample in group:
                    sample.named = True


def _printed(text: str, bar: re.Match[str]) -> str:
    """The epoch that a loop printed directly behind its bar."""
    printed = _PRINTED.match(text[bar.end() :])
    return "" if printed is None else printed[0]


def _number(text: str) -> float:
    """`1.5k` as 1500; 0 if two overlapping redraws have left no number."""
    number = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([kM]?)", text)
    return float(number[1]) * {"": 1, "k": 1e3, "M": 1e6}[number[2]] if number else 0.0


def _counts_epochs(head: str, unit: str) -> bool:
    return (
        "epoch" in unit.lower() or re.fullmatch(r"\W*epochs?\W*", head, re.IGNORECASE) is not None
    )


def _odd_unit(unit: str) -> bool:
    """Units such as `s/epoch`, which are not rates of steps."""
    return "epoch" in unit.lower()
