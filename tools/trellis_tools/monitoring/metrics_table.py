"""The metrics of the services as a Markdown table, from the registry.

Pure except for a private registry. In: nothing. Out: rows of the table. Called by ``generate``.
"""

from __future__ import annotations

from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from trellis.telemetry.metrics import Metrics
from trellis.telemetry.observed import ObservedGauge

BEGIN: Final = "<!-- metrics: written by make generate from shared/trellis/telemetry/metrics.py -->"
END: Final = "<!-- end of metrics -->"


def described() -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return by scraped name the type of each metric, its labels and its description."""
    found: dict[str, tuple[str, tuple[str, ...], str]] = {}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            suffix = "_total" if metric._type == "counter" else ""  # noqa: SLF001 - no public accessor
            found[f"{metric._name}{suffix}"] = (str(metric._type), metric._labelnames, metric._documentation)  # noqa: SLF001
        elif isinstance(metric, ObservedGauge):
            found[metric.name] = ("gauge", metric.labels, metric.documentation)
    found["trellis_build_info"] = ("gauge", ("version",), "Constant 1 with the version as label")
    return dict(sorted(found.items()))


def metrics_table() -> str:
    """Return the metrics as a Markdown table; the label ``service``, which nearly all have, is omitted."""
    rows = []
    for name, (kind, labels, documentation) in described().items():
        others = ", ".join(f"`{label}`" for label in labels if label != "service")
        rows.append(f"| `{name}` | {kind} | {others} | {documentation.replace('|', '&#124;')} |\n")
    return "".join(("| metric | type | labels | description |\n", "|---|---|---|---|\n", *rows))


def with_table(text: str) -> str:
    """Return a page with the current table between the marks.

    Raises:
        ValueError: the page lacks the marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has no place for the table of metrics: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{metrics_table()}{END}{after}"
