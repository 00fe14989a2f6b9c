"""The log of a job in object storage, copied to where it can be read like a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schedmate.errors import InputError
from schedmate.logparse.reading import Log, LogError, LogFile
from schedmate.logparse.reading.log import is_text
from schedmate.logparse.reading.prefixes import origin_of_file
from schedmate.logparse.reading.storage import store_stream
from schedmate.scale.objects import opened


def open_objects(name: str, urls: Sequence[str]) -> Log:
    """The log of one job in these objects. Raises `LogError` when none can be read as text."""
    log = Log(name, [])
    reasons = []
    try:
        for url in urls:
            try:
                with opened(url) as stream:
                    storage, warning = store_stream(stream, url)
            except InputError as error:
                reasons.append(str(error))
                continue
            key = Path(url.partition("://")[2])
            origin = origin_of_file(key, key.parent.parent)
            file = LogFile(url, storage, None, origin.rank, origin.node)
            if not file.size or not is_text(file):
                why = "it is not text" if file.size else "it is empty"
                file.close()
                reasons.append(f"{url} cannot be read as a log: {warning or why}.")
                continue
            log.files.append(file)
            log.warnings += [warning] if warning else []
    except BaseException:
        log.close()
        raise
    if not log.files:
        raise LogError(reasons[0])
    log.warnings += reasons
    log.files.sort(key=lambda file: (file.rank is None, file.rank or 0, file.name))
    return log
