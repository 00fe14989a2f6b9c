"""What the program did with words and folders, which tells what a setting's value means."""

from __future__ import annotations

from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.fields.leaves import normal
from schedmate.agent.interp import classes
from schedmate.agent.interp.trace import Trace

_MAKES = ("os.makedirs", "os.mkdir", "pathlib.Path().mkdir", "tensorboard.SummaryWriter")


def made_folders(trace: Trace) -> list[str]:
    """Folders that the program makes: where it writes."""
    given = (event.args[0].data for event in trace.calls if event.path in _MAKES and event.args)
    return [folder for folder in given if isinstance(folder, str) and "/" in folder]


def is_output(text: str, made: list[str]) -> bool:
    """Whether a path is a folder that the program makes, or makes others in."""
    place = text.rstrip("/")
    return "/" in place and any(
        folder.removeprefix("./").rstrip("/") == place.removeprefix("./")
        or folder.startswith(f"{place}/")
        for folder in made
    )


def used_words(trace: Trace, built: list[Candidate]) -> set[str]:
    """Normalised names that were called, or passed to something that was."""
    words = {normal(str(candidate.data)) for candidate in built}
    words |= {normal(name) for name in trace.looked_up}
    for event in trace.calls:
        if event.function:
            words.add(normal(event.function))
        words.add(normal(classes.last(event.path)))
        for value in event.args[:3]:
            if isinstance(value.data, str) and len(value.data) < 80:
                words.add(normal(value.data))
    return words
