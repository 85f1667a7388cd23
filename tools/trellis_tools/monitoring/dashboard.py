"""The Grafana dashboard as JSON, for import into Grafana or for its sidecar in a ConfigMap.

Pure. In: the table of panels. Out: a dashboard of schema version 39 (Grafana 11 and later). Called by ``generate``.
Invariant: the data source is a variable, so that the file works in any Grafana.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trellis_tools.monitoring.panels import ROWS, Panel, Row

UID: Final = "trellis"
_WIDTH: Final = 8
_ACROSS: Final = 24
_HEIGHT: Final = 7
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


def make_dashboard(rows: Sequence[Row] = ROWS) -> Json:
    """Return the dashboard."""
    panels: list[Json] = []
    y = 0
    for row in rows:
        panels.append(_heading(row, len(panels) + 1, y))
        y += 1
        for position, panel in enumerate(row.panels):
            across, down = position * _WIDTH % _ACROSS, position * _WIDTH // _ACROSS
            place = {"h": _HEIGHT, "w": _WIDTH, "x": across, "y": y + down * _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        y += -(-len(row.panels) * _WIDTH // _ACROSS) * _HEIGHT
    return {
        "uid": UID,
        "title": "Trellis",
        "tags": ["trellis", "wasm"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _namespace()]},
        "annotations": {"list": []},
        "panels": panels,
    }


def expressions(dashboard: Json) -> list[str]:
    """Return the PromQL expressions of a dashboard."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def _heading(row: Row, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": _ACROSS, "x": 0, "y": y},
        "panels": [],
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> Json:
    found: Json = {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + position), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for position, (expression, legend) in enumerate(panel.queries)
        ],
    }
    if panel.stat:
        found["options"] = {"textMode": "value_and_name", "reduceOptions": {"calcs": ["lastNotNull"]}}
        for target in found["targets"]:
            target["instant"] = True
    return found


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _namespace() -> Json:
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(trellis_build_info, namespace)", "refId": "namespace"},
        "refresh": 2,
        "includeAll": True,
        # Also matches series without the label namespace.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
