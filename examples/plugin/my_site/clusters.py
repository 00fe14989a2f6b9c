"""A kind of cluster: `schedmate folder agent --once`. Each `schedmate --help` imports it."""

from __future__ import annotations

from schedmate.cluster import ClusterKind


class Folder(ClusterKind):
    """Jobs are files of a folder."""

    name, title = "folder", "folder"

    def section(self):
        from my_site.folder import FolderBounds

        return FolderBounds

    def adapter(self, bounds):
        from my_site.folder import FolderAdapter

        return FolderAdapter(bounds.section_of("folder").jobs)
