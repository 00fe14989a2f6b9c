"""One entry of a defaults list, and the package arithmetic of Hydra."""

from __future__ import annotations

from dataclasses import dataclass

from schedmate.agent.values import Origin, Value

SELF = "_self_"


@dataclass(slots=True)
class Entry:
    """`group: name`, or a bare config `group/name` when `is_group` is false.

    `name` is None for no config, a list for several. After `place` the entry knows the group and
    the package of the config that lists it.
    """

    group: str
    name: str | list[str] | None
    is_group: bool = True
    absolute: bool = False
    package: str | None = None
    optional: bool = False
    override: bool = False
    origin: Origin | None = None
    base: str = ""
    parent_package: str = ""
    header: str | None = None

    def place(self, base: str, parent_package: str) -> None:
        """Tell the entry the group and the package of the config that lists it."""
        self.base, self.parent_package = base, parent_package
        if self.package is not None and "_group_" in self.package:
            default = self.group_path.replace("/", ".")
            self.package = f"_global_.{self.package.replace('_group_', default)}"

    def set_header(self, header: str | None) -> None:
        """Note the `@package` header of the config; a header is always absolute."""
        if header is None or header == "_group_":
            return
        if header != "_global_" and not header.startswith("_global_."):
            header = f"_global_.{header}" if header else "_global_"
        self.header = header.replace("_group_", self.group_path.replace("/", "."))

    def option(self, name: str) -> Entry:
        """The entry for one of several options of this group."""
        group, _, name = f"{self.group}/{name}".rpartition("/")
        return Entry(group, name, False, self.absolute, self.package, self.optional)

    @property
    def group_path(self) -> str:
        """The group below the search path."""
        if self.absolute or not self.base:
            return self.group
        return f"{self.base}/{self.group}" if self.group else self.base

    @property
    def config_path(self) -> str:
        """The config below the search path."""
        return f"{self.group_path}/{self.name}" if self.group_path else str(self.name)

    def final_package(self, *, use_header: bool = True) -> str:
        """The package the config is merged at; "" is the top."""
        package = self.package
        if package is None and use_header:
            package = self.header
        if package is None:
            package = self.group.replace("/", ".")
        if isinstance(self.name, str):
            package = package.replace("_name_", self.name)
        joined = ".".join(part for part in (self.parent_package, package) if part)
        _, mark, after = joined.rpartition("_global_")
        return after[1:] if mark else after  # `[1:]` makes `__global__` mean `_global_`, too

    @property
    def key(self) -> str:
        """`group`, or `group@package` when the package is not the group's own."""
        package = self.final_package(use_header=False)
        if package == self.group_path.replace("/", "."):
            return self.group_path
        return f"{self.group_path}@{package or '_global_'}"


def parse_entry(item: Value) -> Entry | str:
    """An item of a defaults list; a string says what is wrong with it."""
    data = item.data
    if isinstance(data, str):
        path, at, package = data.partition("@")
        group, _, name = path.rpartition("/")
        absolute = path.startswith("/")
        entry = Entry(group.lstrip("/"), name, False, absolute, _package(at, package))
        entry.origin = item.origin
        return entry
    if not isinstance(data, dict) or not data:
        return f"item {item.plain()!r} is neither a config nor 'group: option'; it was left out"
    pairs = dict(data)
    old_optional = pairs.pop("optional", None) if len(pairs) > 1 else None
    key, option = next(iter(pairs.items()))
    words = str(key).split() or [""]
    keywords = words[:-1]
    group, at, package = words[-1].partition("@")
    chosen = option.plain()
    if isinstance(chosen, list | tuple):
        chosen = [str(part) for part in chosen]
    elif chosen is not None and not isinstance(chosen, str):
        return f"option {chosen!r} of '{group}' is not text; quote it"
    if not group.strip("/"):
        return f"item {key!r} names no group; it was left out"
    return Entry(
        group.strip("/"),
        chosen,
        absolute=group.startswith("/"),
        package=_package(at, package),
        optional="optional" in keywords or bool(old_optional and old_optional.data),
        override="override" in keywords,
        origin=option.origin,
    )


def _package(at: str, package: str) -> str | None:
    """The package after `@`; `_here_` is the package of the config that lists the entry."""
    if not at:
        return None
    package = package.partition(":")[0]
    return "" if package == "_here_" else package
