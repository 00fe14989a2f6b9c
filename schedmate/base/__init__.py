"""The ground floor: what every part of schedmate stands on; it imports nothing else of
schedmate.

`collect_seldom` is here because each process of schedmate's own calls it first.
"""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Look for cycles a seventieth as often as Python does by itself.

    Syntax trees, traces and jobs are many objects that live until the answer is there: going
    through them again and again takes a quarter of an analysis and finds nothing. The library
    leaves its host's collector as it is; only schedmate's own processes call this.
    """
    gc.set_threshold(50_000, 20, 100)
