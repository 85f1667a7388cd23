"""Prometheus' own tool on alert rules and dashboard: they can be read, and alerts fire when they should."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.progress import Lines
from trellis_tools.monitoring.dashboard import expressions, make_dashboard

ROOT = Path(__file__).parents[3]
# The first one builds promtool.
pytestmark = pytest.mark.timeout(1800)

RULES = ROOT / "deploy/monitoring/rules.yaml"
CASES = ROOT / "tests/data/alerts/rules.test.yaml"


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Return the program, built once from Prometheus' Go module unless there is one."""
    return tools.ensure("promtool", Lines())


def printed(program: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_rule_is_one_that_prometheus_reads(promtool: Path) -> None:
    code, expected_text = printed(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert code == 0, expected_text
    assert "rules found" in expected_text


@pytest.mark.thorough
def test_every_alert_fires_on_its_condition_and_not_otherwise(promtool: Path) -> None:
    code, expected_text = printed(promtool, "test", "rules", str(CASES))
    assert code == 0, expected_text
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fired = {item["alertname"] for case in cases for item in case["alert_rule_test"] if item.get("exp_alerts")}
    names = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert fired == names, "each is seen to fire"


def test_every_panel_asks_what_prometheus_understands(promtool: Path, tmp_path: Path) -> None:
    requested = [expression.replace("$__rate_interval", "5m") for expression in expressions(make_dashboard())]
    rules = [{"record": f"panel:{number}", "expr": item} for number, item in enumerate(requested)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    code, expected_text = printed(promtool, "check", "rules", "--lint=none", str(file))
    assert code == 0, expected_text
    assert f"{len(requested)} rules found" in expected_text


def test_a_broken_rule_is_seen(promtool: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(RULES.read_text().replace("== 0", "== == 0", 1))
    code, expected_text = printed(promtool, "check", "rules", str(file))
    assert code != 0
    assert "parse error" in expected_text
