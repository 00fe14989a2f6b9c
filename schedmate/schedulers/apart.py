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
        """GPUs of jobs that lend them, or want them back from whoever still uses them."""
        self.lendable: dict[int, int] = {}
        """Of these, those that may be borrowed from now on."""
        self.claimed: dict[int, int] = {}
        """GPUs kept for jobs that start when others have left all of theirs."""
        self.unheld: dict[int, int] = {}
        """Of all that are set apart, those that nobody uses."""

    def __bool__(self) -> bool:
        return bool(self.closed or self.lending or self.claimed)

    def close(self, node: int, free: int) -> None:
        """Nothing new may start on a node; these of its GPUs are free."""
        self.closed.add(node)
        self._mark(node, free)

    def reopen(self, node: int) -> int:
        """Return the node to normal use; gives its free GPUs."""
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
        """These are kept for a job; some of them are `free` already."""
        self.claimed[node] = self.claimed.get(node, 0) | mask
        self._mark(node, free)

    def end_claim(self, node: int, mask: int) -> int:
        """Nothing is kept any more; those that are free now."""
        if rest := self.claimed.get(node, 0) & ~mask:
            self.claimed[node] = rest
        else:
            self.claimed.pop(node, None)
        return 0 if node in self.closed else self._unmark(node, mask)

    def lent(self, node: int) -> int:
        """GPUs of a node that can be borrowed at once."""
        return 0 if node in self.closed else self.unheld.get(node, 0) & self.lendable.get(node, 0)

    def borrow(self, allocation: Allocation) -> bool:
        """Borrow these; False, and nothing done, when one of them is not to be had."""
        if any(self.lent(node) & mask != mask for node, mask in allocation):
            return False
        for node, mask in allocation:
            self._unmark(node, mask)
        return True

    def give(self, node: int, mask: int) -> int:
        """GPUs are left by whoever used them; those of them that are free now."""
        kept = self.lending.get(node, 0) | self.claimed.get(node, 0)
        apart = mask if node in self.closed else mask & kept
        if apart:
            self._mark(node, apart)
        return mask & ~apart

    def retake(self, node: int, mask: int) -> int:
        """Undo `give`; those of the GPUs that were free."""
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
