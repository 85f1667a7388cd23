"""Alert rules, dashboard and page against what the services really expose; PromQL itself is for promtool to judge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from support.suite.naming import lacking
from trellis.telemetry import Metrics, process_metrics
from trellis.telemetry.observed import ObservedGauge
from trellis_tools.monitoring.dashboard import expressions, make_dashboard
from trellis_tools.monitoring.generate import CHART, documents, main
from trellis_tools.monitoring.metrics_table import BEGIN, described, with_table
from trellis_tools.monitoring.panels import ROWS

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy/monitoring/rules.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs/observability/alerts.md").read_text()
OF_SCRAPING = {"namespace", "pod", "le"}
"""Labels that no metric has by itself."""
_SELECTOR = re.compile(r"\b((?:trellis|process)_[a-z_]+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"by \(([^)]*)\)")


def series() -> dict[str, set[str]]:
    """Return the series that a process has, by name, with their labels."""
    found: dict[str, set[str]] = {}
    for metric in vars(Metrics()).values():
        if isinstance(metric, ObservedGauge):
            found[metric.name] = set(metric.labels)
        if not isinstance(metric, MetricWrapperBase):
            continue
        labels = set(metric._labelnames)
        name = metric._name
        if isinstance(metric, Histogram):
            found |= {f"{name}{suffix}": labels for suffix in ("_bucket", "_count", "_sum")}
        else:
            found[name if isinstance(metric, Gauge) else f"{name}_total"] = labels
    for family in process_metrics().registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set(sample.labels))
    return found


KNOWN = series()


def queries() -> list[tuple[str, str]]:
    alerts = [(rule["alert"], rule["expr"]) for rule in ALERTS]
    panels = [(panel.title, expression) for row in ROWS for panel in row.panels for expression, _ in panel.queries]
    return [*alerts, *panels]


@pytest.mark.parametrize(("what", "expression"), queries())
def test_every_query_names_existing_metrics_and_labels(what: str, expression: str) -> None:
    used = _SELECTOR.findall(expression)
    assert used, what
    labels: set[str] = set()
    for name, selector in used:
        assert name in KNOWN, f"no service has {name}"
        labels |= KNOWN[name]
        matched = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert matched <= KNOWN[name] | OF_SCRAPING, f"{name} has no such label"
    for group in _GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= labels | OF_SCRAPING


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_states_the_problem_its_severity_and_only_known_causes(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    [*_, last] = _GROUPED.findall(rule["expr"]) or [""]
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert named <= {label.strip() for label in last.split(",")}, "the expression keeps no other label"


def test_each_alert_has_its_place_on_the_page_and_no_other_has() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == names, "in the order of the rules"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for expression in expressions(make_dashboard()) for name, _ in _SELECTOR.findall(expression)}
    missing = {name for name in described() if not any(item.startswith(name) for item in shown)}
    assert missing == set(), "add a panel"


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    dashboard = make_dashboard()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    places = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & places, f"{panel['title']} lies on another panel"
        places |= cells
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    text = str(expressions(dashboard)) + str([panel.get("datasource") for panel in dashboard["panels"]])
    assert set(re.findall(r"\$\{?(\w+)", text)) <= variables | {"__rate_interval"}


def test_the_files_are_those_that_are_generated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--check", str(ROOT)]) == 0
    for path, text in documents(ROOT).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / CHART / "dashboard.json").write_text("{}")
    assert main(["--check", str(tmp_path)]) == 1
    assert lacking(capsys.readouterr().err, f"{CHART}/dashboard.json") == []
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0


def test_the_plain_files_are_the_chart_s() -> None:
    for name in ("dashboard.json", "rules.yaml"):
        assert (ROOT / "deploy/monitoring" / name).resolve() == (ROOT / CHART / name).resolve()


def test_a_page_without_a_place_for_the_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape(BEGIN)):
        with_table("# A page\n")
