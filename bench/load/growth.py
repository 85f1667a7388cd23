"""The growth of a figure with the size: the exponent of a power that fits it best.

Pure. In: sizes and figures. Out: an exponent: 0 is constant, 1 linear. Called by ``page``. A straight line is fitted to
the logarithms by least squares, as is common; four sizes distinguish only linear from quadratic growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

LINEAR: Final = 1.0
TOLERANCE: Final = 0.15
"""Noise of an exponent at a factor of eight: a last figure that is a third too high."""


def exponent(sizes: Sequence[float], figures: Sequence[float]) -> float:
    """Return the exponent.

    Raises:
        ValueError: there are fewer than two sizes, or a size or a figure is not above 0.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(figures) or min(*sizes, *figures) <= 0:
        message = f"no exponent from sizes {list(sizes)} and figures {list(figures)}"
        raise ValueError(message)
    xs, ys = [math.log(size) for size in sizes], [math.log(figure) for figure in figures]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def grows_too_fast(sizes: Sequence[float], figures: Sequence[float], allowed: float = LINEAR) -> bool:
    """Return whether a figure grows faster than it may."""
    return exponent(sizes, figures) > allowed + TOLERANCE
