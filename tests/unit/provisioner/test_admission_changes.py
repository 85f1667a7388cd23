"""Changes of a Job by admission: harmless, reported, or unusable."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from provisioner.admission_changes import Changed, differences, is_usable
from provisioner.domain.resources import Installer, Task, make_installer_job
from trellis import names
from trellis.installer_api.spec import InstallSpec
from trellis.provisioning.views import Target
from trellis_dev.testing.builders import a_node

INSTALLER = Installer("i:1", "own:1", "IfNotPresent", None, "ns", 600, 0, "10m", "64Mi", "installer")
SPEC = InstallSpec((), require_checksum=True, allow_http=False)
REQUESTED = make_installer_job(INSTALLER, a_node(), Task(Target((("spin", "d1"),)), spec=SPEC), 1, None)
Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]
"""Changes a Job, its pod's spec, its container."""


def after(change: Change) -> set[Changed]:
    job = deepcopy(REQUESTED)
    pod = job["spec"]["template"]["spec"]
    change(job, pod, pod["containers"][0])
    return {difference.what for difference in differences(REQUESTED, job)}


def defaults(job: dict[str, Any], pod: dict[str, Any], container: dict[str, Any]) -> None:
    job["spec"] |= {"parallelism": 1, "completions": 1, "suspend": False, "manualSelector": False}
    job["metadata"]["labels"] |= {"team": "a", names.LABEL_MANAGED_BY: "policy"}
    pod |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "securityContext": {}}
    pod["tolerations"].append({"key": "a", "operator": "Exists"})
    pod["initContainers"] = [{"name": "proxy", "image": "p", "restartPolicy": "Always"}]
    container["env"].append({"name": "PROXY", "value": "http://proxy"})
    container["securityContext"] |= {"runAsUser": 0}
    container["terminationMessagePath"] = "/dev/termination-log"


def test_defaults_and_additions_are_no_difference() -> None:
    assert after(defaults) == set()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda job, _pod, _one: job["metadata"]["labels"].pop(names.LABEL_NODE_UID), Changed.MARKS),
        (lambda job, _pod, _one: job["metadata"].update(labels={}), Changed.MARKS),
        (lambda job, _pod, _one: job["metadata"]["annotations"].update({names.ANNOTATION_NODE: "x"}), Changed.MARKS),
        (lambda _job, pod, _one: pod.update(nodeName="other"), Changed.NODE),
        (lambda _job, pod, _one: pod.pop("nodeName"), Changed.NODE),
        (lambda job, _pod, _one: job["spec"].update(parallelism=2), Changed.PARALLELISM),
        (lambda job, _pod, _one: job["spec"].update(completions=2), Changed.PARALLELISM),
        (lambda job, _pod, _one: job["spec"].update(suspend=True), Changed.SUSPENDED),
        (lambda job, _pod, _one: job["spec"].pop("activeDeadlineSeconds"), Changed.DEADLINE),
        (lambda _job, pod, _one: pod.update(nodeSelector={"a": "b"}), Changed.PLACEMENT),
        (lambda _job, pod, _one: pod.update(affinity={"nodeAffinity": {}}), Changed.PLACEMENT),
        (lambda _job, pod, _one: pod.update(tolerations=[]), Changed.PLACEMENT),
        (lambda _job, pod, _one: pod["containers"].append({"name": "istio-proxy"}), Changed.CONTAINER),
        (lambda _job, _pod, item: item.update(image="mirror.example.com/own:1"), Changed.IMAGE),
        (lambda _job, _pod, item: item.update(args=["other"]), Changed.COMMAND),
        (lambda _job, _pod, item: item["env"].pop(), Changed.COMMAND),
        (lambda _job, _pod, item: item.update(securityContext={"privileged": False}), Changed.PRIVILEGES),
        (lambda _job, pod, _one: pod.pop("hostPID"), Changed.PRIVILEGES),
        (lambda _job, pod, _one: pod.update(volumes=[]), Changed.PRIVILEGES),
        (lambda _job, pod, _one: pod.update(serviceAccountName="default"), Changed.SERVICE_ACCOUNT),
    ],
)
def test_a_change_by_admission_is_named(change: Change, what: Changed) -> None:
    assert after(change) == {what}


def test_the_worst_comes_first() -> None:
    job = deepcopy(REQUESTED)
    job["spec"]["suspend"] = True
    job["spec"]["template"]["spec"]["nodeName"] = "other"
    assert [difference.what for difference in differences(REQUESTED, job)] == [Changed.NODE, Changed.SUSPENDED]


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job["metadata"].pop("labels"),
        lambda job: job["metadata"].pop("annotations"),
        lambda job: job["spec"]["template"]["spec"].update(nodeName="other"),
        lambda job: job["spec"].update(parallelism=3),
    ],
    ids=["labels", "annotations", "node", "parallelism"],
)
def test_an_existing_job_is_usable_only_if_it_matches_the_request(change: Callable[[dict[str, Any]], object]) -> None:
    assert is_usable(REQUESTED)
    job = deepcopy(REQUESTED)
    change(job)
    assert not is_usable(job)
