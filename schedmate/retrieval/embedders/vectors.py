"""Vector arithmetic that embedders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


def unit(vectors: Any) -> NDArray[float32]:
    """The rows as float32 of length 1; a zero row stays zero."""
    import numpy as np

    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)
