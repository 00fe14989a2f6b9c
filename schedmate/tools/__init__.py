"""What an agent may touch: `file_tree` and `file_read` below one directory, and nothing else."""

from schedmate.tools.langchain import as_langchain
from schedmate.tools.limits import Limits
from schedmate.tools.repo_files import RepoFiles

__all__ = ["Limits", "RepoFiles", "as_langchain"]
