"""docs/wasm-pods.md is correct: its example, permissions, commands and reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from support.suite.commands import expect_command
from support.wasm_pods.objects import LABEL, SPACE, WORLD, executor, kube_of, node, pod, spin_app, unscheduled, workload
from trellis.kube.resources import (
    ALL,
    DEPLOYMENTS,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
)
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import pods_page
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.read_model.reading.pod_kinds import KINDS, RESOURCES
from trellis.read_model.reading.wasm_pods import read_wasm_pods
from trellis.read_model.wasm_pods.reasons import ORDER, Reason
from trellis_cli.status.wasm_pods import wasm_pods_part, workload_parts
from trellis_dev.fakes.fake import FakeKube

PAGE = (Path(__file__).parents[2] / "docs/wasm-pods.md").read_text(encoding="utf-8")
LINES = sorted(set(re.findall(r"(?:^|`|\$ )trellis (explain[^`#\n]*)", PAGE, re.MULTILINE)))
Permission = tuple[str, str, str]


def block(info: str) -> str:
    [found] = re.findall(rf"```{info}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


async def test_the_example_has_the_first_line_of_the_page() -> None:
    deployment = yaml.safe_load(block("yaml example"))
    deployment["metadata"]["uid"] = "uid-deployment"
    of_set = ("ReplicaSet", "hello-5d8f", "uid-deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    names = ("hello-5d8f-a", "hello-5d8f-b")
    pods = [(PODS, unscheduled(name, owner=of_set, labels=labels)) for name in names]
    _, of_class, shim = WORLD
    kube = kube_of((NODES, node(labels={})), of_class, shim, (DEPLOYMENTS, deployment), *pods)
    page = await pods_page(Reading(kube, "trellis-system"), "deployment", "hello", SPACE)
    command, line = block("text example").strip().split("\n")
    assert command == f"$ trellis explain deployment/hello -n {SPACE}"
    assert line == page.headline
    assert page.cause is not None
    assert page.cause.reason == Reason.NO_NODE_WITH_LABEL
    assert all(f"{name}={value}" in line for name, value in LABEL.items())


async def test_the_rows_of_status_are_those_of_the_page() -> None:
    of_set = ("ReplicaSet", "hello-5d8f", "uid-hello")
    pods = [(PODS, unscheduled(name, owner=of_set)) for name in ("hello-5d8f-a", "hello-5d8f-b")]
    _, of_class, provided = WORLD
    kube = kube_of((NODES, node(labels={})), of_class, provided, (DEPLOYMENTS, workload(replicas=2)), *pods)
    kube.put(PODS, pod("alone"))
    found = await read_wasm_pods(Reading(kube, "trellis-system"))
    expected = " ".join(block("text status").split())
    for part in (wasm_pods_part(found.snapshot, found.workloads), *workload_parts(found.workloads)):
        assert f"{part.name} {'yes' if part.ok else 'no'} {part.text}; {part.problem}" in expected
    assert len(workload_parts(found.workloads)) == 1


async def test_status_needs_no_permission_that_the_page_does_not_name() -> None:
    kube = kube_of(*WORLD, (PODS, pod()), spinkube=True)
    await read_wasm_pods(Reading(kube, "trellis-system"))
    used = permissions_of(kube)
    assert ("list", "", "pods") in used
    assert used <= await asked()


async def asked() -> set[Permission]:
    """Return the permissions that the pages of all kinds need, also of missing objects."""
    of_app = ("SpinApp", "hello", "uid-app-hello")
    crashed = pod("hello", {"name": "app", "state": {"terminated": {"exitCode": 3}}, "ready": False, "restartCount": 1})
    kube = kube_of(
        *WORLD,
        (SPIN_APPS, spin_app()),
        (SPIN_APP_EXECUTORS, executor()),
        (DEPLOYMENTS, workload(owner=of_app)),
        (PODS, crashed),
        *((RESOURCES[kind], workload()) for kind in KINDS if kind not in {"pod", "deployment", "spinapp"}),
        spinkube=True,
    )
    reading = Reading(kube, "trellis-system")
    for kind in KINDS:
        await pods_page(reading, kind, "hello", SPACE)
        with pytest.raises(ObjectNotFoundError):
            await pods_page(reading, kind, "missing", SPACE)
    return permissions_of(kube)


def permissions_of(kube: FakeKube) -> set[Permission]:
    known = {(res.api_version, res.plural): res for res in (*ALL, SPIN_APPS, SPIN_APP_EXECUTORS)}
    found = set()
    for request in kube.api.requests:
        _, root, *parts = request.path.split("/")
        version, parts = (parts[0], parts[1:]) if root == "api" else ("/".join(parts[:2]), parts[2:])
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        res = known[version, parts[0]]
        of = "/".join((res.plural, *parts[2:3]))
        found.add(("get" if len(parts) > 1 else "list", res.group, of))
        assert request.method == "GET"
    return found


async def test_the_permissions_of_the_page_are_those_that_are_used() -> None:
    rules = yaml.safe_load(block("yaml rbac"))["rules"]
    granted = {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert await asked() == granted
    assert {(res.group, res.plural) for res in (RUNTIME_CLASSES, SHIMS)} <= {(group, of) for _, group, of in granted}


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_exists(line: str) -> None:
    expect_command(line.strip())


def test_every_kind_with_a_page_is_named() -> None:
    assert all(f"trellis explain {kind}/NAME" in PAGE for kind in KINDS)


def test_every_reason_has_a_meaning_in_the_order_of_the_steps() -> None:
    table = PAGE.partition("\n## Reasons\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    listed = [Reason(name) for _, names, *_ in rows for name in re.findall(r"`(\w+)`", names)]
    assert set(listed) == set(Reason)
    causes = listed[: listed.index(Reason.WAITING)]
    assert causes == sorted(causes, key=lambda reason: ORDER[reason])
    assert all(meaning.strip() for _, _, meaning, _ in rows)
