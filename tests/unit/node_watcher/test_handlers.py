"""An event of which the watch has shown what it says starts no run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_watcher.handlers import is_shown
from trellis.events.provision import ProvisionEventData, ProvisionFailed, ProvisionSucceeded
from trellis.provisioning.views import JobState, JobView
from trellis_dev.testing.builders import a_job, a_node

RUNS = a_job(a_node())
ABOUT = {"node": "node-1", "node_uid": RUNS.node_uid, "digest": RUNS.digest, "attempt": 1}
JOB = f"{RUNS.namespace}/{RUNS.name}"
SUCCEEDED = ProvisionSucceeded(**ABOUT, job=JOB, verified="handler")
FAILED = ProvisionFailed(**ABOUT, job=JOB, reason="InstallerFailed", message="no")


@pytest.mark.parametrize(
    ("event", "job", "shown"),
    [
        pytest.param(SUCCEEDED, RUNS, False, id="it runs"),
        pytest.param(SUCCEEDED, replace(RUNS, state=JobState.COMPLETE), True, id="it ended well"),
        pytest.param(SUCCEEDED, replace(RUNS, name="another", state=JobState.COMPLETE), False, id="another Job"),
        pytest.param(FAILED, replace(RUNS, state=JobState.FAILED), False, id="no verdict on it"),
        pytest.param(FAILED, replace(RUNS, state=JobState.FAILED, failure="InstallerFailed: no"), True, id="a verdict"),
    ],
)
def test_an_event_is_shown_with_its_content(event: ProvisionEventData, job: JobView, *, shown: bool) -> None:
    assert is_shown(event, [job]) is shown
