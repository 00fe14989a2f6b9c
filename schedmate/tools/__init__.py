"""What an agent may touch: `file_tree` and `file_read` below one directory, and nothing else."""

from schedmate.tools.repo_files import Limits, RepoFiles, as_langchain

__all__ = ["Limits", "RepoFiles", "as_langchain"]
