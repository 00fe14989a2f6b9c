"""The layers of a Wide-ResNet: convolutions as matrix products (Alpa, OSDI'22, Table 8)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

IMAGE = 224
CLASSES = 1024
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class Layer(NamedTuple):
    """A bottleneck block, the stem or the classifier."""

    name: str
    products: tuple[tuple[float, float, float], ...]
    """Its convolutions as (output pixels of an image, inner size, output channels)."""
    parameters: float
    saved: float
    """Elements of an image kept for the backward pass."""

    @property
    def output(self) -> float:
        """Elements of an image that the next layer takes."""
        pixels, _, channels = self.products[min(2, len(self.products) - 1)]
        return pixels * channels


@cache
def layers(depth: int, base: int, width: int) -> tuple[Layer, ...]:
    """Stem, bottleneck blocks and classifier of a Wide-ResNet, in order.

    `depth` is 50 or 101, `base` the channels of the stem, `width` the factor of the wide ones. The
    first block of each group but the first halves the image; the first of each has a projection.
    """
    side = IMAGE // 2
    stem = (side**2, 7 * 7 * 3, base)
    found = [Layer("stem", (stem,), stem[1] * stem[2], 2 * side**2 * base)]
    side, channels = side // 2, base
    for group, count in enumerate(_BLOCKS[depth]):
        narrow = base * 2**group
        inner, out = narrow * width, 4 * narrow
        for index in range(count):
            if index == 0 and group:
                side //= 2
            products = [
                (side**2, channels, narrow),
                (side**2, 9 * narrow, inner),
                (side**2, inner, out),
            ]
            if index == 0:
                products.append((side**2, channels, out))
            parameters = sum(inside * outside for _, inside, outside in products)
            saved = 2 * sum(pixels * outside for pixels, _, outside in products)
            found.append(
                Layer(f"block-{group + 1}.{index + 1}", tuple(products), parameters, saved)
            )
            channels = out
    classifier = (1, channels, CLASSES)
    return (*found, Layer("classifier", (classifier,), channels * CLASSES, channels + CLASSES))
