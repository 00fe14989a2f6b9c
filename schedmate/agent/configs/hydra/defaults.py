"""Hydra's defaults lists: which configs are composed, in which order, into which package.

The rules are those of Hydra 1.1 and later (https://hydra.cc/docs/advanced/defaults_list/): a
config without `_self_` comes after its defaults, overrides anywhere in the tree hold everywhere,
interpolated options are settled after their siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schedmate.agent.configs.hydra.entries import SELF, Entry, parse_entry
from schedmate.agent.configs.hydra.overrides import Override
from schedmate.agent.configs.hydra.sources import BUILT_IN, Sources
from schedmate.agent.configs.interpolation import has_interpolation, resolve_interpolations
from schedmate.agent.configs.trees import wrap
from schedmate.agent.values import Origin, Value, lifted

MAX_CONFIGS = 2_000
"""Most configs one composition visits."""
MAX_NESTING = 40
"""Deepest chain of configs that list each other."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A config to merge at `package` ("" is the top)."""

    path: str
    package: str


@dataclass(slots=True)
class _Chosen:
    option: str | list[str] | None
    origin: Origin | None
    external: bool = False
    used: bool = False


@dataclass(slots=True)
class DefaultsList:
    """The result: configs in order, the option each group got, and what went wrong."""

    placed: list[Placed] = field(default_factory=list)
    choices: dict[str, Value] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def build_defaults(
    sources: Sources, config_name: str | None, group_overrides: Sequence[Override]
) -> DefaultsList:
    """The defaults list of a primary config under overrides of groups.

    `unused` names the group overrides (`group` or `group@package`) that matched no entry.
    """
    builder = _Builder(sources, group_overrides)
    builder.run(config_name)
    return builder.result


class _Builder:
    def __init__(self, sources: Sources, overrides: Sequence[Override]) -> None:
        self.result = DefaultsList()
        self._sources = sources
        self._overrides: dict[str, _Chosen] = {}
        self._deletions: dict[str, Override] = {}
        self._deleted_keys: set[str] = set()
        self._appended: list[Entry] = []
        self._visited = 0
        for override in overrides:
            option = _option(override)
            if override.kind == "delete":
                self._deletions[override.group_key] = override
            elif override.kind == "change":
                self._overrides[override.group_key] = _Chosen(option, override.origin, True)
            else:
                entry = Entry(
                    override.key, option, package=override.package, origin=override.origin
                )
                self._appended.append(entry)

    def run(self, config_name: str | None) -> None:
        primary: list[Placed] = []
        if config_name:
            group, slash, name = config_name.rpartition("/")
            entry = Entry(group.lstrip("/"), name, is_group=False, absolute=bool(slash))
            entry.place("", "")
            primary = self._expand(entry, (), primary=True)
        elif self._appended:
            primary = self._children(self._appended, "", "", ())
        own = [Entry(group, options[0] if options else None) for group, options in BUILT_IN.items()]
        hydra = self._children(own, "hydra", "hydra", ())
        self.result.placed = [*hydra, *primary]
        for key, chosen in self._overrides.items():
            if chosen.external and not chosen.used:
                self.result.unused.append(key)
            elif not chosen.used:
                self._warn(f"'override {key}: {chosen.option}' matches no entry of a defaults list")
        self.result.unused += [key for key in self._deletions if key not in self._deleted_keys]
        for key in [key for key in self.result.choices if _own_default(key, self.result.choices)]:
            del self.result.choices[key]

    def _warn(self, message: str) -> None:
        if message not in self.result.warnings:
            self.result.warnings.append(message)

    def _expand(
        self,
        entry: Entry,
        ancestors: tuple[str, ...],
        *,
        primary: bool = False,
        interpolated: bool = False,
    ) -> list[Placed]:
        """The configs that `entry`, already placed, stands for, in order of merging."""
        path = entry.config_path
        config = None
        if isinstance(entry.name, str) and entry.name != "???":
            config = self._sources.load(path)
        if config is not None:
            entry.set_header(config.header)
        if self._deleted(entry):
            return []
        if entry.is_group:
            first = self.result.choices.setdefault(entry.key, lifted(entry.name, entry.origin))
            if first.plain() != entry.name:
                self._warn(f"'{entry.key}' is given both '{first.plain()}' and '{entry.name}'")
        if entry.name is None:
            return []
        if config is None:
            if entry.name == "???":
                self._warn(f"'{entry.key}' has no option yet; give one as {entry.key}=<option>")
            elif not entry.optional:
                hint = self._sources.slip(path)
                self._warn(f"config '{path}' is not in the repository; it was left out{hint}")
            return []
        here = Placed(path, entry.final_package())
        if path in ancestors:
            self._warn(f"the defaults list of '{path}' leads back to itself; it was cut there")
            return []
        self._visited += 1
        if self._visited > MAX_CONFIGS or len(ancestors) >= MAX_NESTING:
            self._warn(f"the defaults lists grow too large at '{path}'; the rest was left out")
            return [here]
        listed = [parse_entry(item) for item in config.defaults]
        entries = [item for item in listed if isinstance(item, Entry)]
        for problem in (item for item in listed if isinstance(item, str)):
            self._warn(f"in the defaults list of '{path}': {problem}")
        appended = [replace(item) for item in self._appended] if primary else []
        if not any(item.name == SELF for item in entries) and (
            any(not item.override for item in entries) or (appended and not entries)
        ):
            entries.append(Entry("", SELF, is_group=False))
        placed = self._children(
            [*entries, *appended],
            entry.group_path,
            entry.final_package(),
            (*ancestors, path),
            here,
            interpolated,
        )
        return placed if any(not item.override for item in [*entries, *appended]) else [here]

    def _children(
        self,
        entries: Sequence[Entry],
        base: str,
        package: str,
        ancestors: tuple[str, ...],
        here: Placed | None = None,
        interpolated: bool = False,
    ) -> list[Placed]:
        """Expand the entries of one list, the last first: what it overrides reaches the others."""
        for entry in entries:
            if entry.name != SELF:
                entry.place(base, package)
            if entry.override and not interpolated:
                self._overrides.setdefault(entry.key, _Chosen(entry.name, entry.origin))
        slots: list[list[Placed]] = []
        deferred: list[tuple[int, Entry]] = []
        for entry in reversed(entries):
            if entry.name == SELF:
                slots.append([here] if here else [])
                continue
            if entry.override:
                continue
            chosen = self._chosen(entry, entries) if entry.is_group else None
            if chosen is not None:
                entry.name, entry.origin, chosen.used = chosen.option, chosen.origin, True
            if isinstance(entry.name, list):
                self.result.choices.setdefault(entry.key, wrap(list(entry.name), entry.origin))
                for option in reversed(entry.name):
                    item = entry.option(option)
                    item.place(base, package)
                    slots.append(self._expand(item, ancestors, interpolated=interpolated))
            elif has_interpolation(entry.config_path):
                deferred.append((len(slots), entry))
                slots.append([])
            else:
                slots.append(self._expand(entry, ancestors, interpolated=interpolated))
        known = self._known_choices(entries) if deferred else Value({})
        for slot, entry in deferred:
            if self._settle(entry, known):
                slots[slot] = self._expand(entry, ancestors, interpolated=True)
        return [placed for slot in reversed(slots) for placed in slot]

    def _chosen(self, entry: Entry, siblings: Sequence[Entry]) -> _Chosen | None:
        """The override of an entry; `task=x` also reaches the only `task@package` listed."""
        exact = self._overrides.get(entry.key)
        if exact is not None or "@" not in entry.key:
            return exact
        group = entry.key.partition("@")[0]
        same = [e for e in siblings if e.is_group and e.key.partition("@")[0] == group]
        return self._overrides.get(group) if len(same) == 1 else None

    def _known_choices(self, entries: Sequence[Entry]) -> Value:
        listed = [
            wrap(
                {entry.key: list(entry.name) if isinstance(entry.name, list) else entry.name}
                if entry.is_group
                else entry.config_path,
                None,
            )
            for entry in entries
        ]
        return Value({**self.result.choices, "defaults": Value(listed)})

    def _settle(self, entry: Entry, known: Value) -> bool:
        """Resolve the interpolation in an entry's name from the choices made so far."""
        text = f"{entry.group}/{entry.name}" if not entry.is_group else str(entry.name)
        asked = Value({**(known.mapping or {}), " ": Value(text.lstrip("/"))})
        answer = (resolve_interpolations(asked).mapping or {})[" "].data
        if not isinstance(answer, str):
            self._warn(f"option '{entry.name}' of '{entry.key}' cannot be resolved; left out")
            return False
        if entry.is_group:
            entry.name = answer
        else:
            entry.group, _, entry.name = answer.rpartition("/")
            entry.absolute = False  # Hydra reads the answer relative to the listing config
        return True

    def _deleted(self, entry: Entry) -> bool:
        deletion = self._deletions.get(entry.key) if entry.is_group else None
        if deletion is None or (deletion.has_value and deletion.value != entry.name):
            return False
        self._deleted_keys.add(entry.key)
        return True


def _option(override: Override) -> str | list[str] | None:
    if isinstance(override.value, list):
        return [str(item) for item in override.value]
    if override.value is None or isinstance(override.value, str):
        return override.value
    return override.text.partition("=")[2].strip()


def _own_default(key: str, choices: dict[str, Value]) -> bool:
    """Whether a choice is Hydra's own default."""
    head, _, group = key.partition("/")
    return head == "hydra" and group in BUILT_IN and choices[key].origin is None
