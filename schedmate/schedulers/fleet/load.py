"""Tasks on one node, where a task may be on two nodes at once."""

from __future__ import annotations

from collections import Counter

from schedmate.schedulers.fleet.snapshot import MILLI, NONE, FleetSnapshot


class Load:
    """The tasks on a node, and its free resources."""

    def __init__(self, snapshot: FleetSnapshot, node: int) -> None:
        nodes = snapshot.nodes
        self.snapshot = snapshot
        self.whole = int(nodes.gpus[node])
        self.cpus, self.memory = int(nodes.cpus[node]), int(nodes.memory[node])
        self.tasks: dict[int, int] = {}
        """Each with its GPU if it holds a part of one."""
        self.shared: dict[int, int] = {}
        """Free parts of the GPUs with fractions [milli-GPUs]."""
        self.groups: Counter[int] = Counter()
        self.avoided: Counter[int] = Counter()

    def fits(self, t: int, device: int) -> bool:
        """Whether a task could come now, a fraction onto that GPU."""
        tasks = self.snapshot.tasks
        if self.cpus < tasks.cpus[t] or self.memory < tasks.memory[t]:
            return False
        need = int(tasks.gpus[t])
        if need >= MILLI:
            if self.whole * MILLI < need:
                return False
        elif need:
            free = self.shared.get(device)
            if (free is None and not self.whole) or (free is not None and free < need):
                return False
        avoid = self.snapshot.avoid_sets[tasks.avoid[t]]
        return not self.avoided[int(tasks.group[t])] and not any(self.groups[g] for g in avoid)

    def put(self, t: int, device: int) -> None:
        """A task comes, whether it fits or not."""
        self._add(t, device, 1)
        self.tasks[t] = device

    def take(self, t: int) -> None:
        """A task goes."""
        self._add(t, self.tasks.pop(t), -1)

    def _add(self, t: int, device: int, sign: int) -> None:
        tasks = self.snapshot.tasks
        need = int(tasks.gpus[t])
        self.cpus -= sign * int(tasks.cpus[t])
        self.memory -= sign * int(tasks.memory[t])
        if need >= MILLI:
            self.whole -= sign * need // MILLI
        elif need:
            if device not in self.shared:
                self.shared[device] = MILLI
                self.whole -= 1
            self.shared[device] -= sign * need
            if self.shared[device] == MILLI:
                del self.shared[device]
                self.whole += 1
        if tasks.group[t] != NONE:
            self.groups[int(tasks.group[t])] += sign
        for group in self.snapshot.avoid_sets[tasks.avoid[t]]:
            self.avoided[group] += sign
