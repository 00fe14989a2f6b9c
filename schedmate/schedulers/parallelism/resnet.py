"""Wide-ResNet: its convolutions as matrix products, and its sizes (Alpa, OSDI'22, Table 8)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.operators import Operator, Shape

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

    def operators(self, images: int, tensor: int, element: int) -> list[Operator]:
        """Its operators for a micro-batch of images on one of `tensor` GPUs."""
        found = []
        for pixels, inner, channels in self.products:
            shape = Shape(1, images * pixels, inner, channels / tensor)
            rows, columns = shape.rows, shape.columns
            traffic = element * (rows * inner / 4 + inner * columns + 3 * rows * columns)
            found.append(Operator("convolution", 2 * rows * inner * columns, traffic, shape))
        return found


@cache
def layers(spec: ModelSpec) -> tuple[Layer, ...]:
    """Stem, bottleneck blocks and classifier of a Wide-ResNet.

    The first block of a group halves the image (but the first group's) and has a projection.
    """
    side = IMAGE // 2
    stem = (side**2, 7 * 7 * 3, spec.base)
    found = [Layer("stem", (stem,), stem[1] * stem[2], 2 * side**2 * spec.base)]
    side, channels = side // 2, spec.base
    for group, count in enumerate(_BLOCKS[spec.depth]):
        narrow = spec.base * 2**group
        inner, out = narrow * spec.width, 4 * narrow
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
