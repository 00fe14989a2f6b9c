"""Its adapter: pending jobs are files `ID.json`, each a `JobSpec`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from schedmate.cluster.adapter import Description, LiveJob, Observer
from schedmate.jobs import JobSpec


class FolderBounds(BaseModel):
    """The section `folder` of `bounds.yaml`."""

    jobs: Path = Path("jobs")


class FolderAdapter(Observer):
    """What a method of `Observer` does not say here, nobody knows: no nodes, nothing that ended."""

    name = cluster = "folder"

    def __init__(self, folder):
        self.folder = folder

    def jobs(self):
        rest = {"submitted": None, "started": None, "nodes": (), "held": False, "reason": ""}
        return [
            LiveJob(id=path.stem, group=path.stem, state="PENDING", user="", queues=(), **rest)
            for path in sorted(self.folder.glob("*.json"))
        ]

    def describe(self, jobs):
        files = {job: (self.folder / f"{job}.json").read_text() for job in jobs}
        return {job: Description(JobSpec.model_validate_json(files[job]), "") for job in files}
