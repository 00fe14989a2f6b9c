"""GPUs that do not go back to the free ones: of nodes that are drained or down, lent or claimed."""

from __future__ import annotations

from schedmate.schedulers.model import Allocation


class Apart:
    """By node, the GPUs set apart and which of them are idle."""

    __slots__ = ("claimed", "closed", "lendable", "lending", "unheld")

    def __init__(self) -> None:
        self.closed: set[int] = set()
        """Nodes on which nothing new may start."""
        self.lending: dict[int, int] = {}
        """GPUs of jobs that lend them, or that reclaim them from their borrowers."""
        self.lendable: dict[int, int] = {}
        """Of these, those that may be borrowed from now on."""
        self.claimed: dict[int, int] = {}
        """GPUs kept for jobs that start when others have left all of theirs."""
        self.unheld: dict[int, int] = {}
        """GPUs of any of these kinds that no job uses."""

    def __bool__(self) -> bool:
        return bool(self.closed or self.lending or self.claimed)

    def close(self, node: int, free: int) -> None:
        """Close a node with these free GPUs: nothing new may start there."""
        self.closed.add(node)
        self._mark(node, free)

    def reopen(self, node: int) -> int:
        """Return the node to normal use; return its free GPUs."""
        self.closed.discard(node)
        return self._unmark(node, ~(self.lending.get(node, 0) | self.claimed.get(node, 0)))

    def lend(self, node: int, mask: int) -> None:
        """Their holder does not use these."""
        self.lending[node] = self.lending.get(node, 0) | mask
        self.lendable[node] = self.lendable.get(node, 0) | mask
        self._mark(node, mask)

    def call_back(self, node: int, mask: int) -> None:
        """End lending of these GPUs; present borrowers keep using them."""
        self.lendable[node] = self.lendable.get(node, 0) & ~mask

    def end_loan(self, node: int, mask: int, *, left: bool) -> int:
        """Their holder uses these again, or has `left` them; those that are free now."""
        for masks in (self.lending, self.lendable):
            if rest := masks.get(node, 0) & ~mask:
                masks[node] = rest
            else:
                masks.pop(node, None)
        if left and node in self.closed:
            return 0
        unheld = self._unmark(node, mask)
        return unheld if left else 0

    def claim(self, node: int, mask: int, free: int) -> None:
        """Reserve GPUs for a job; some of them are `free` already."""
        self.claimed[node] = self.claimed.get(node, 0) | mask
        self._mark(node, free)

    def end_claim(self, node: int, mask: int) -> int:
        """End the claim of these GPUs; return those that are free now."""
        if rest := self.claimed.get(node, 0) & ~mask:
            self.claimed[node] = rest
        else:
            self.claimed.pop(node, None)
        return 0 if node in self.closed else self._unmark(node, mask)

    def lent(self, node: int) -> int:
        """GPUs of a node that can be borrowed now."""
        return 0 if node in self.closed else self.unheld.get(node, 0) & self.lendable.get(node, 0)

    def borrow(self, allocation: Allocation) -> bool:
        """Borrow these; False, without effect, if one of them cannot be borrowed."""
        if any(self.lent(node) & mask != mask for node, mask in allocation):
            return False
        for node, mask in allocation:
            self._unmark(node, mask)
        return True

    def give(self, node: int, mask: int) -> int:
        """Release GPUs; return those that are free for other jobs now."""
        kept = self.lending.get(node, 0) | self.claimed.get(node, 0)
        apart = mask if node in self.closed else mask & kept
        if apart:
            self._mark(node, apart)
        return mask & ~apart

    def retake(self, node: int, mask: int) -> int:
        """Undo `give`; return the GPUs that were free."""
        return mask & ~self._unmark(node, mask)

    def _mark(self, node: int, mask: int) -> None:
        self.unheld[node] = self.unheld.get(node, 0) | mask

    def _unmark(self, node: int, mask: int) -> int:
        unheld = self.unheld.get(node, 0)
        if rest := unheld & ~mask:
            self.unheld[node] = rest
        else:
            self.unheld.pop(node, None)
        return unheld & mask
