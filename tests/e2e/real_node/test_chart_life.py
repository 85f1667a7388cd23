"""The life of an installation on three real nodes: one object of every kind at work, upgrades beneath them, the end.

The tests are steps of one story, in their order. The chart that is upgraded is the package of the version before, in
``tests/data/chart``: no checkout has to know its own history. The objects are the examples as they stand, but for what
would be fetched: a shim, a component, wadm and hosts come from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from playwright.async_api import expect

from support.chart import lived_in
from support.chart.chart_cluster import NATS_IMAGE, chart_cluster
from support.chart.forwarded import forwarded
from support.chart.lived_in import HELLO, HOSTS, PAYMENTS, Life
from support.chart.rendered import CHART, ChartRefusedError
from support.chart.services_image import image_of
from support.console.page_browser import Chrome
from support.lattices.wasmcloud_image import wasmcloud_image
from support.nodes.https_files import http_files
from support.nodes.real_nodes import eventually, pod, wasm_pod
from support.nodes.shim_archives import archive
from support.suite.jaeger import JAEGER, jaeger_image
from trellis import names
from trellis.bus.accounts.naming import CLAIM_STREAM
from trellis.bus.accounts.permissions import CLI_INBOX
from trellis.events.subjects import STREAM_SUBJECTS
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import hello_wasm_image
from trellis_dev.localcluster.wasmshim import hello_module, shim

BEFORE = Path(__file__).parents[2] / "data" / "chart" / "trellis-0.2.99.tgz"
APPLICATIONS = "applications.core.oam.dev"
TEAM = "team-a"
TOKEN = "that of the card processor"
ONE_SERVER: dict[str, Any] = {"nats": {"image": NATS_IMAGE, "replicas": 1}}
"""What the version before had; what one server has stored does not move to three."""


@pytest.fixture(scope="module")
def life(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    assert machine
    folder = tmp_path_factory.mktemp("life")
    (folder / "files").mkdir()

    def wasm(how: How) -> Path:
        (folder / "files" / "v1.tar.gz").write_bytes(archive(shim(how).read_bytes()))
        return hello_wasm_image(hello_module(how), how)

    with ExitStack() as stack:
        images = (wasmcloud_image, wasm, lambda _: jaeger_image(folder / "jaeger.tar"))
        cluster = stack.enter_context(chart_cluster(folder, images))
        files = stack.enter_context(http_files(cluster.info, folder / "files"))
        before = cluster.inventory()
        cluster.prepare()
        yield Life(cluster, folder, files, before)


def test_the_version_before_is_installed(life: Life) -> None:
    life.cluster.install(BEFORE, **ONE_SERVER)
    assert {workload["metadata"]["labels"]["app.kubernetes.io/name"] for workload in life.cluster.workloads()} == {
        "trellis"
    }


def provisioned(life: Life, node: str) -> bool:
    labels = life.cluster.kubectl.get("node", node)["metadata"]["labels"]
    return bool(labels.get(names.LABEL_WASM_READY) == names.WASM_READY)


def test_a_labelled_node_runs_wasm(life: Life) -> None:
    kubectl = life.cluster.kubectl
    kubectl("label", "node", "real-1", "wasm=true")
    life.apply("shim", lived_in.shim_from(life.files, "v1.tar.gz"))
    eventually(lambda: provisioned(life, "real-1"), "the node is ready")
    life.until_healthy("shims", "spin")
    assert not provisioned(life, "real-0")
    hello = wasm_pod("hello", "real-1", "spin")
    del hello["spec"]["nodeName"]  # the RuntimeClass leads it there
    kubectl.create(hello)
    assert kubectl.ended("hello") == "hello from wasm\n"
    kubectl("delete", "pod", "hello", "--now")


def test_a_group_of_hosts_joins_its_lattice(life: Life) -> None:
    life.apply("host-group", lived_in.HOST_IMAGES, images=lived_in.IMAGES)
    life.until_healthy("whc", HOSTS, "-n", HELLO)


def test_an_application_answers_by_its_service(life: Life) -> None:
    life.apply("hello", lived_in.APPLICATION)
    life.until_healthy(APPLICATIONS, HELLO, "-n", HELLO)
    with life.answering("real-2"):
        pass


def test_a_component_is_given_its_secret(life: Life) -> None:
    life.apply("secret", lived_in.APPLICATION)
    life.until_healthy(APPLICATIONS, "greeter", "-n", HELLO)


def test_a_component_is_granted_a_secret_of_another_namespace(life: Life) -> None:
    life.cluster.kubectl("create", "namespace", PAYMENTS)
    permissions = life.outside.trellis("secrets", "roles", "-n", PAYMENTS, "-a", "reader", "-s", "card-processor")
    for item in (*yaml.safe_load_all(permissions), *lived_in.payments(TOKEN)):
        life.cluster.kubectl.create(item)
    life.until_healthy(APPLICATIONS, "checkout", "-n", HELLO)


def test_controllers_do_their_work(life: Life) -> None:
    kubectl = life.cluster.kubectl
    life.apply("controllers")
    for name in ("ttl", "mirror"):
        life.until_healthy("wasmcontrollers", name, "-n", TEAM)
    kubectl("create", "configmap", "original", "-n", TEAM, "--from-literal=a=b")
    kubectl("label", "configmap", "original", "-n", TEAM, "examples.trellis.dev/mirror=yes")
    finished_job(life, "ends")
    kept = ("get", "configmaps", "-n", "copies", "-o", "jsonpath={.items[*].data.a}")
    eventually(lambda: kubectl(*kept) == "b", "there is a copy")


def finished_job(life: Life, name: str) -> None:
    """Make a Job that is to go as soon as it is finished, and wait until it has been deleted."""
    kubectl = life.cluster.kubectl
    metadata = {"name": name, "namespace": TEAM, "annotations": {"examples.trellis.dev/ttl-seconds": "1"}}
    spec = {"template": {"spec": pod(name, "true", "real-2")["spec"]}}
    kubectl.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    eventually(lambda: not kubectl("get", "jobs", "-n", TEAM, "-o", "name"), "the finished Job is deleted")


MESSAGES = {
    "node.ready", "provision.succeeded", "hosts.ready", "application.synced", "service.reflected", "secret.granted",
}  # fmt: skip


def test_every_step_is_published_on_the_bus(life: Life) -> None:
    def missing() -> set[str]:
        return MESSAGES - {".".join(event["type"].split(".")[2:4]) for event in life.outside.events().values()}

    try:
        eventually(lambda: not missing(), "all is said", 60)
    except AssertionError:
        pytest.fail(f"nobody said {missing()}")
    with life.outside.bus() as settings:
        output_text = life.outside.trellis("events", "tail", "--last", "10", "--until", "1s", **settings)
    assert len(output_text.splitlines()) >= 10
    assert TOKEN not in output_text


def streams(life: Life) -> dict[str, datetime | None]:
    """Return when each stream of the bus was made."""

    async def read(settings: dict[str, str]) -> dict[str, datetime | None]:
        seed = settings.get("NATS_NKEY_FILE")
        client = await nats.connect(settings["NATS_URL"], inbox_prefix=CLI_INBOX.encode(), nkeys_seed=seed)
        try:
            js = client.jetstream()
            return {name: (await js.stream_info(name)).created for name in (*STREAM_SUBJECTS, CLAIM_STREAM)}
        finally:
            await client.close()

    with life.outside.bus() as settings:
        return asyncio.run(read(settings))


def test_an_upgrade_to_more_servers_is_refused(life: Life) -> None:
    with pytest.raises(ChartRefusedError, match=r"Keep nats\.replicas=1"):
        life.cluster.helm("upgrade", "trellis", str(CHART), values=life.cluster.values())


def test_an_upgrade_disturbs_nothing_that_runs(life: Life, tmp_path: Path) -> None:
    cluster, kubectl = life.cluster, life.cluster.kubectl
    labels, pods, events, made = cluster.inventory().nodes, life.running(), life.outside.events(), streams(life)
    with kubectl.watching(tmp_path / "jobs", "jobs", "-n", "trellis-installers"), life.all_healthy():
        with life.answering("real-2"):
            cluster.install(CHART, **ONE_SERVER)
        works = wasm_pod("works", "real-1", "spin")
        kubectl.create(works)
        assert kubectl.ended("works") == "hello from wasm\n"
        kubectl("delete", "pod", "works", "--now")
    assert life.running() == pods
    assert cluster.inventory().nodes == labels
    assert streams(life) == made
    assert events.keys() <= life.outside.events().keys()


def test_changes_after_the_upgrade_are_carried_out_by_the_new_version(life: Life) -> None:
    kubectl = life.cluster.kubectl
    kubectl("scale", f"whc/{HOSTS}", "-n", HELLO, "--replicas=2")
    two = "jsonpath={.status.readyReplicas}"
    eventually(lambda: kubectl("get", "whc", HOSTS, "-n", HELLO, "-o", two) == "2", "there is a second host")
    finished_job(life, "ends-too")


async def test_the_console_shows_what_runs_and_where(life: Life, chrome: Chrome) -> None:
    """Served by the image, reached through the API server: real hosts and wadm, as one sees them who may only look."""
    cluster, kubectl = life.cluster.info, life.cluster.kubectl
    kubectl("create", "serviceaccount", "looker")
    kubectl("create", "clusterrole", "looker", "--verb=get,list,watch", "--resource=*.*")
    kubectl("create", "clusterrolebinding", "looker", "--clusterrole=looker", "--serviceaccount=default:looker")
    try:
        token = kubectl("create", "token", "looker").strip()
        with forwarded(cluster, "trellis-console", 8088) as port:
            async with chrome.window(f"http://127.0.0.1:{port}", token) as window:
                await window.sees('[data-id="node/real-1"] .glyph.is-healthy')
                hosts = window.page.locator(f'[data-id^="host/{HELLO}/"]')
                await expect(hosts.locator(".glyph.is-healthy")).to_have_count(2)
                await window.sees(f'[data-id="application/{HELLO}/{HELLO}"]', "Deployed")
                service = f'[data-id="service/{HELLO}/{HELLO}"]'
                await window.sees(f"{service} .glyph.is-healthy")
                await window.page.locator(service).click()
                await window.sees("aside.panel .headline", "is ready")
                await expect(window.page.get_by_text("Services of no application")).to_have_count(0)
                await window.in_both("chart-map")
    finally:
        kubectl("delete", "clusterrolebinding,clusterrole", "looker")
        kubectl("delete", "serviceaccount", "looker")


def test_its_helm_test_passes_as_its_notes_document(life: Life) -> None:
    output = life.cluster.helm("test", "trellis")
    assert "Phase:          Succeeded" in output


def test_a_changed_value_disturbs_nothing_either(life: Life) -> None:
    """All services are replaced, as they get the address of a Jaeger, and prepare the next node."""
    running = life.running()
    life.cluster.install(CHART, **ONE_SERVER, jaeger={"enabled": True, "image": image_of(JAEGER)})
    assert life.running() == running
    life.cluster.kubectl("label", "node", "real-2", "wasm=true")
    eventually(lambda: provisioned(life, "real-2"), "the second node is ready")

    def output() -> str:
        of_node = (event for event in life.outside.events().values() if event["subject"] == "real-2")
        return next((item["traceparent"] for item in of_node if "node.ready" in item["type"]), "")

    eventually(output, "it is said that the node is ready", 60)


def test_it_is_uninstalled_and_nothing_is_left(life: Life) -> None:
    cluster, kubectl = life.cluster, life.cluster.kubectl
    kubectl("delete", "shim", "spin", "--timeout=180s")
    kubectl("label", "node", "real-1", "real-2", "wasm-")
    cluster.uninstall()
    kubectl("delete", "namespace", TEAM, HELLO, "copies", PAYMENTS, "--timeout=120s")
    cluster.clean()
    after = cluster.inventory()
    assert life.before.new_in(after) == []
    assert after.nodes == life.before.nodes
