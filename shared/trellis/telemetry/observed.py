"""A gauge of which callbacks return the values.

In: callbacks of parts of a service, by labels. Out: the values at each scrape. Created by ``metrics``. A gauge of the
library uses 2.4 KiB for each series, this one 0.7 KiB, and there are 17 series for each lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily

Read = Callable[[], float]
Forget = Callable[[], None]
Series = tuple[str, ...]
"""The values of the labels."""


class ObservedGauge:
    """A gauge of a registry; each series has a callback."""

    def __init__(self, name: str, documentation: str, labels: Series, registry: CollectorRegistry) -> None:
        self.name: Final = name
        self.documentation: Final = documentation
        self.labels: Final = labels
        self._reads: dict[Series, tuple[Read]] = {}
        registry.register(self)

    def observe(self, series: Series, read: Read) -> Forget:
        """Export a series; a new callback of the same series replaces the former.

        Returns:
            A function that ends the series, unless another callback has taken it over.
        """
        if len(series) != len(self.labels):
            raise ValueError(f"{self.name} needs the labels {self.labels}")
        holder = self._reads[series] = (read,)
        return partial(self._forget, series, holder)

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the gauge without its series, of which the registry needs the name."""
        return [GaugeMetricFamily(self.name, self.documentation, labels=self.labels)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with the current values."""
        (family,) = self.describe()
        for series, (read,) in list(self._reads.items()):
            family.add_metric(series, float(read()))
        yield family

    def _forget(self, series: Series, holder: tuple[Read]) -> None:
        if self._reads.get(series) is holder:
            del self._reads[series]
