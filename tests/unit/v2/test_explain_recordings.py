"""Each recorded situation of the real wasmCloud v2 has the right cause in the first line."""

from __future__ import annotations

import pytest

from support.suite.naming import lacking
from support.v2.cases import CASES, Case, page, snapshot_of
from support.v2.recordings import SITUATIONS, recording, workloads
from trellis.read_model.explain.subject import Beside
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.workload import explain_workload
from trellis.v2.reasons import Reason


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_first_line_has_the_cause(case: Case) -> None:
    found = page(case)
    assert (found.cause.reason if found.cause else None) == case.reason, found.headline
    assert found.verdict.health is case.health
    assert lacking(found.headline, *case.named) == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_order_of_lists_does_not_matter(case: Case) -> None:
    assert {page(case, seed).document()["headline"] for seed in range(4)} == {page(case).headline}


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.kind == "workloaddeployment"], ids=str)
def test_its_workloads_have_the_cause_too(case: Case) -> None:
    snapshot = snapshot_of(case)
    reasons = {
        cause.reason if (cause := explain_workload(snapshot, item, Beside()).cause) else None
        for item in workloads(snapshot, case.name)
    }
    own = {Reason.NOT_OBSERVED, Reason.ARTIFACT_NOT_FOUND, Reason.ARTIFACT_NOT_LISTED, Reason.ARTIFACT_NOT_PUBLISHED}
    assert case.reason in reasons or case.reason in own | {Reason.WAITING}


def test_every_situation_has_a_case() -> None:
    asked = {case.situation for case in CASES.values()}
    without_a_problem = {"18-deletion"}
    assert {name for name in SITUATIONS if name.partition("-")[0] not in asked} == without_a_problem


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_moment_of_a_recording_has_a_page_of_every_object(name: str) -> None:
    found = recording(name)
    for at in found.times[:: max(len(found.times) // 25, 1)]:
        for listened in (0.0, 21.0):
            snapshot = found.snapshot(at, listened=listened, replies=True)
            for item in snapshot.deployments:
                assert explain_deployment(snapshot, item, Beside()).headline
            for workload in snapshot.workloads:
                assert explain_workload(snapshot, workload, Beside()).headline
            for each in snapshot.hosts:
                assert explain_host(snapshot, each, Beside()).headline
            for artifact in snapshot.artifacts:
                assert explain_artifact(snapshot, artifact, Beside()).headline
