"""The repository as a launch command sees it: files, modules, console scripts. Read only."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import cached_property

from schedmate.agent.configs.reader import read_config
from schedmate.agent.launch.console_scripts import console_scripts
from schedmate.agent.launch.files import Files
from schedmate.agent.launch.packages import declared_folders, root_package
from schedmate.agent.values import Value


class Repo(Files):
    """Files under `root`, and what Python imports and installs from them."""

    def config(self, path: str) -> Value:
        """A configuration file. Raises InputError for what cannot be read."""
        return read_config(self.root / path, self.root)

    def module(self, name: str, roots: Sequence[str]) -> str | None:
        """The file that `python -m name` runs, with `roots` before the usual places."""
        relative = name.replace(".", "/")
        if not re.fullmatch(r"[\w/]+", relative):
            return None
        for root in dict.fromkeys([*roots, ".", "src", "lib", "python"]):
            for candidate in (f"{relative}.py", f"{relative}/__main__.py"):
                path = posixpath.normpath(posixpath.join(root, candidate))
                if self.is_file(path):
                    return path
        declared = self._in_package_folder(name)
        if declared is not None:
            return declared
        return self.only_one_ending(f"{relative}.py") if "/" in relative else None

    def of_package(self, package: str | None, main: str, cwd: str) -> str | None:
        """The dotted name of a package's module `main`, of the only package that has one."""
        ends = f"/{main}.py"
        here = "" if cwd == "." else f"{cwd}/"
        packages = [f.removeprefix(here).removesuffix(ends) for f in self.files if f.endswith(ends)]
        names = [package] if package is not None else [name for name in packages if "/" not in name]
        return f"{names[0]}.{main}" if len(names) == 1 and names[0] in packages else None

    def _in_package_folder(self, name: str) -> str | None:
        """The file of a module of a package that is not named after its folder."""
        root = {} if self.root_package is None else {self.root_package: "."}
        for package, folder in (root | self.package_folders).items():
            if name == package or name.startswith(f"{package}."):
                rest = name.removeprefix(package).replace(".", "/")
                for ending in (".py", "/__main__.py"):
                    path = posixpath.normpath(f"{folder}{rest}{ending}")
                    if self.is_file(path):
                        return path
        return None

    @cached_property
    def package_folders(self) -> dict[str, str]:
        """Folders that setup.py gives packages which are not named after them."""
        return declared_folders(self)

    @cached_property
    def root_package(self) -> str | None:
        """The package that the root itself is imported as; takes reading up to 200 modules."""
        return root_package(self)

    @cached_property
    def console_scripts(self) -> dict[str, str]:
        """Console scripts the project declares, name -> `module:function`."""
        return console_scripts(self)
