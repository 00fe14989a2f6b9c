"""Fetches logs of pods into files, which are read in confined processes.

Each run of a job has a folder with a file for each container (`POD.CONTAINER.log`), as for ranks.
The size is limited, and old folders are removed when there are too many.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from schedmate.files import replaced
from schedmate.paths import children
from schedmate.schedulers.live.kubernetes.api import Api, KubernetesError
from schedmate.schedulers.live.kubernetes.kinds import path_of

TAIL_LINES = 3000
"""Lines that are fetched of the log of a running job."""
LONGEST_TAIL = 2 << 20
"""Bytes of these at most."""
LONGEST = 32 << 20
"""Bytes that are fetched of a failed container's log."""
LOG_TIMEOUT_S = 15.0
"""How long fetching one log may take [s]."""
MOST_UNREACHABLE = 3
"""Logs of a run that their nodes do not deliver, after which no more are requested."""
MOST = 64
"""Logs that are fetched of one run."""
KEPT = 200
"""Folders that are kept; then the oldest go."""


class Source(NamedTuple):
    """The log of a container, or of the one before it in the same pod."""

    namespace: str
    pod: str
    container: str
    previous: bool = False


class Logs:
    """A folder of logs."""

    def __init__(self, api: Api, folder: Path, *, kept: int | None = KEPT) -> None:
        """`kept` folders are kept, or all of them for None."""
        self._api, self._folder, self._kept = api, folder, kept

    def fetch(
        self,
        name: str,
        sources: Iterable[Source],
        *,
        tail: bool,
        warnings: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[Path | None, str]:
        """The folder with the logs of one run, named `name`; None without any, and why.

        `tail` fetches the end of the logs, else all that is stored. `warnings` are the cluster's
        warnings by pod, which are appended to the log of the pod.
        """
        short = re.sub(r"[^A-Za-z0-9@.-]", "_", name)[:120]
        folder = self._folder / f"{short}-{sha256(name.encode()).hexdigest()[:12]}"
        said = {
            pod: "".join(f"{one}\n" for one in lines) for pod, lines in (warnings or {}).items()
        }
        why = "no pod of it is left"
        unreachable, fetched = 0, set()
        for source in list(sources)[:MOST]:
            text = b""
            if unreachable < MOST_UNREACHABLE:
                try:
                    text = self._text(source, tail=tail)
                    why = why if text else "its log is empty"
                except KubernetesError as error:
                    if error.code in (0, 429, 503):  # the API server itself
                        raise
                    why = str(error)  # the container or its node is gone
                    unreachable += error.code >= 500
            if source.pod in said:
                end = b"" if not text or text.endswith(b"\n") else b"\n"
                text += end + said.pop(source.pod).encode("utf-8", "backslashreplace")
            if not text:
                continue
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fetched.add(folder / f"{source.pod}.{source.container}.log")
            with replaced(folder / f"{source.pod}.{source.container}.log") as file:
                file.write_bytes(text)
        if not fetched:
            return None, why
        for old in set(children(folder)) - fetched:  # of pods that were replaced
            old.unlink(missing_ok=True)
        self._prune()
        return folder, ""

    def _text(self, source: Source, *, tail: bool) -> bytes:
        path = path_of("", "v1", "pods", source.namespace, source.pod)
        return self._api.text(
            f"{path}/log",
            container=source.container,
            previous="true" if source.previous else None,
            tailLines=TAIL_LINES if tail else None,
            limitBytes=LONGEST_TAIL if tail else LONGEST,
            timeout_s=LOG_TIMEOUT_S,
        )

    def of_nodes(self, name: str, said: Mapping[str, Iterable[str]]) -> list[Path]:
        """Files with the nodes' reports, named after the nodes only, as a job's owner chooses other
        names."""
        folder = self._folder / f"nodes-{sha256(name.encode()).hexdigest()[:24]}"
        found = []
        for node, lines in said.items():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            found.append(folder / f"{node}.log")
            with replaced(found[-1]) as file:
                text = "".join(f"{line}\n" for line in lines)
                file.write_text(text, "utf-8", "backslashreplace")
        return found

    def _prune(self) -> None:
        folders = sorted(
            (one for one in children(self._folder) if one.is_dir()),
            key=lambda one: one.stat().st_mtime,
        )
        for folder in folders[: -self._kept] if self._kept else ():
            shutil.rmtree(folder, ignore_errors=True)
