"""Findings of checkov and the excuses of the chart: each finding has one, and each excuse a finding and a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.suite.naming import lacking
from trellis_tools.checkov import Excuse, Finding, compare, excuses_of, findings, main

ROOT = Path(__file__).parents[3]
EXCUSES = ROOT / "deploy/helm/checkov.yaml"
LIMITS = Excuse("CKV_K8S_11", ("Deployment.trellis-system.*",), "why")
REPORT = {
    "check_type": "kubernetes",
    "results": {
        "passed_checks": [{"check_id": "CKV_K8S_8", "resource": "Deployment.trellis-system.a"}],
        "failed_checks": [{"check_id": "CKV_K8S_11", "resource": "Deployment.trellis-system.a"}],
    },
}


def test_a_finding_with_an_excuse_is_no_problem() -> None:
    assert list(compare(findings(REPORT), [LIMITS])) == []


@pytest.mark.parametrize(
    "finding",
    [
        Finding("CKV_K8S_12", "Deployment.trellis-system.a"),
        Finding("CKV_K8S_11", "StatefulSet.trellis-system.a"),
        Finding("CKV_K8S_11", "Deployment.default.a"),
    ],
    ids=["another check", "another kind", "another namespace"],
)
def test_a_finding_without_an_excuse_is_named(finding: Finding) -> None:
    [problem] = compare([*findings(REPORT), finding], [LIMITS])
    assert lacking(problem, finding.check, finding.resource) == []


def test_an_excuse_that_no_finding_needs_is_named() -> None:
    unused = Excuse("CKV_K8S_11", ("Deployment.trellis-system.*", "Job.*"), "why")
    [problem] = compare(findings(REPORT), [unused])
    assert lacking(problem, "CKV_K8S_11", "Job.*") == []


def test_reports_of_several_frameworks_are_read() -> None:
    assert list(findings([REPORT, REPORT])) == [Finding("CKV_K8S_11", "Deployment.trellis-system.a")] * 2


@pytest.mark.parametrize(
    "text", ["- {check: A, resources: ['*']}", "- {check: A, reason: x}", "- {reason: x, resources: [a]}"]
)
def test_an_excuse_without_a_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        excuses_of(text)


def test_the_excuses_of_the_chart_are_complete_and_each_is_there_once() -> None:
    found = excuses_of(EXCUSES.read_text(encoding="utf-8"))
    pairs = [(item.check, resource) for item in found for resource in item.resources]
    assert pairs
    assert len(pairs) == len(set(pairs))


def test_the_command_fails_for_a_problem_and_for_what_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    excuses, report = tmp_path / "excuses.yaml", tmp_path / "report.json"
    excuses.write_text("- {check: CKV_K8S_11, resources: ['*'], reason: why}\n")
    report.write_text(json.dumps(REPORT))
    assert main([str(excuses), str(report)]) == 0
    excuses.write_text("[]\n")
    assert main([str(excuses), str(report)]) == 1
    assert "Deployment.trellis-system.a" in capsys.readouterr().err
    report.write_text("{}")
    assert main([str(excuses), str(report)]) == 2
