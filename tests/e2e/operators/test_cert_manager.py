"""The chart's bus with certificates of cert-manager itself: issued, renewed while services go on, or not to be had.

cert-manager runs with its webhooks. Helm installs the chart; its NATS servers, the containers that reload their
certificates and a service run as processes, and where a kubelet would put a Secret's files, the test does.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import yaml
from nats.aio.msg import Msg

from support.chart.chart_nats import ChartServers, Files, PodServer, mount
from support.chart.installed import Installation, Running, Where, processes
from support.chart.issued_bus import IssuedBus
from support.chart.rendered import CHART, SYSTEM, ChartRefusedError, Manifest, only
from support.nats.buses import eventually, eventually_async
from support.nodes.fleet import Fleet
from support.operators.cert_manager import authority, cert_manager
from support.operators.operator_processes import Operators
from support.suite.service_process import get_status
from support.suite.settling import settle
from trellis.bus.connection.dial import dial
from trellis.bus.errors import BusUnavailable
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.ports import LOOPBACK

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nats,
    pytest.mark.usefixtures("manager"),
]

PAGE = CHART.parents[2] / "docs/installation/nats.md"
ISSUER, AUTHORITY, OTHER = "bus", "bus-authority", "other"
EVENTS = "trellis.evt.trellis.node.opted_in.>"
FOLLOWED_SECONDS = 30.0
"""The container beside each server looks every 5 s."""


@pytest.fixture(scope="module")
def manager(cluster: ClusterInfo, cluster_api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with Operators(cluster, cluster_api, tmp_path_factory.mktemp("cert-manager") / "operators") as made:
        try:
            with cert_manager(made):
                yield
        finally:
            sys.stderr.write(made.output())


@pytest.fixture
def installed(operators: Operators, fleet: Fleet) -> Iterator[IssuedBus]:
    """The chart with one service, where its account is; not applied yet."""
    operators.namespace(SYSTEM)
    values = {"services": only("nodeWatcher"), "installers": {"namespace": fleet.installers}}
    made = IssuedBus(operators, SYSTEM, "issued", values)
    yield made
    made.clear()


@pytest.fixture
def bus(operators: Operators, namespace: str) -> Iterator[IssuedBus]:
    """The chart with one service in a namespace of the test's own; not applied yet."""
    made = IssuedBus(operators, namespace, "bus", {"services": only("serviceReflector")})
    yield made
    made.clear()


@dataclass
class Pods:
    """The servers, and a directory in which services have the authority, as their pods would."""

    servers: ChartServers
    authority: Path
    received: list[str] = field(default_factory=list)

    @property
    def ca_file(self) -> Path:
        return self.authority / "ca.crt"

    def receiving(self, operators: Operators) -> None:
        """Have the containers that reload the certificates of the servers."""
        for number, (pod, command) in enumerate(zip(self.servers.pods, self.servers.reloaders, strict=True)):
            name = f"reloader-{number}"
            log = operators.log(name)
            operators.start(name, (sys.executable, *command[1:]), partial(_says, log, "told the server"))
            assert pod.server.pid is not None

    async def follow(self, issued: Files) -> None:
        """Do what kubelets do with a changed Secret, and wait until each server shows the certificate."""
        mount(self.authority, {"ca.crt": issued["ca.crt"]})
        for pod in self.servers.pods:
            pod.renew(issued)
        wanted = ssl.PEM_cert_to_DER_cert(issued["tls.crt"].partition("-----END CERTIFICATE-----\n")[0] + _END)
        for pod in self.servers.pods:
            await eventually_async(partial(_shows, pod, wanted), FOLLOWED_SECONDS)

    async def receive(self, message: Msg) -> None:
        self.received.append(message.subject)


_END = "-----END CERTIFICATE-----\n"


def _says(log: Path, what: str) -> bool:
    return what in log.read_text(encoding="utf-8")


async def _shows(pod: PodServer, wanted: bytes) -> bool:
    return await pod.shown() == wanted


@contextlib.asynccontextmanager
async def pods(bus: IssuedBus, issued: Files, directory: Path) -> AsyncIterator[Pods]:
    """Run the servers of an installation with a Secret's certificates."""
    authority_of_services = directory / "nats-ca"
    authority_of_services.mkdir()
    with ChartServers(directory / "servers", bus.manifests(), bus.job(), issued).running() as servers:
        bus.hold(servers.users)
        await servers.ready()
        yield Pods(servers, authority_of_services)


@contextlib.asynccontextmanager
async def service(installed: IssuedBus, made: Pods, directory: Path) -> AsyncIterator[Running]:
    """Run the installed service with what its pod has."""
    operators = installed.operators
    where = Where(
        operators.cluster,
        operators.api,
        directory,
        f"{LOOPBACK}:{made.servers.pods[0].server.port}",
        {"TRELLIS_NATS_CA_FILE": str(made.ca_file)},
    )
    async with processes(where, Installation(operators.api).deployments()) as [running]:
        yield running


async def test_services_know_the_servers_by_what_is_issued_and_go_on_while_it_is_renewed(
    installed: IssuedBus, fleet: Fleet, tmp_path: Path
) -> None:
    installed.create(*of_the_page(), *authority(OTHER))
    installed.apply(ISSUER)
    issued = await installed.issued({})
    assert set(issued) == {"tls.crt", "tls.key", "ca.crt"}
    async with pods(installed, issued, tmp_path) as made:
        made.receiving(installed.operators)
        await made.follow(issued)
        await believed(made, issued)

        mount(made.authority, {"ca.crt": installed.secret(OTHER)["ca.crt"]})
        with pytest.raises(BusUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await dial(made.servers.url(), "test", made.servers.credentials("cli", made.ca_file))
        async with service(installed, made, tmp_path) as watcher:
            await eventually_async(partial(complains, watcher, "CERTIFICATE_VERIFY_FAILED"), FOLLOWED_SECONDS)
            mount(made.authority, {"ca.crt": issued["ca.crt"]})
            await watcher.ready()

            client = await dial(made.servers.url(), "test", made.servers.credentials("cli", made.ca_file))
            await client.subscribe(EVENTS, cb=made.receive)
            await settle(client)
            await goes_on(made, fleet, watcher)
            pids = [pod.server.pid for pod in made.servers.pods]
            for again in (installed.renew, installed.lose, partial(shorten, installed), no_change):
                issued = await renewed(installed, issued, again)
                await made.follow(issued)
                await goes_on(made, fleet, watcher)
            assert [pod.server.pid for pod in made.servers.pods] == pids
            assert client.stats["reconnects"] == 0
            made.servers.pods[0].server.kill()  # the service has to connect again
            await made.servers.pods[0].started()
            await goes_on(made, fleet, watcher)
            await client.close()


async def test_certificates_issued_before_and_after_a_ca_renewal_validate_each_other(
    installed: IssuedBus, tmp_path: Path
) -> None:
    installed.create(*of_the_page())
    installed.apply(ISSUER)
    issued, authority_before = await installed.issued({}), installed.secret(AUTHORITY)
    installed.renew(AUTHORITY)
    authority_after = await installed.issued(authority_before, AUTHORITY)
    assert authority_after["tls.key"] == authority_before["tls.key"]
    installed.renew()
    after = await installed.issued(issued)
    assert after["ca.crt"] == authority_after["tls.crt"] != issued["ca.crt"]
    for number, (known, shown) in enumerate([(issued, after), (after, issued)]):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with pods(installed, shown, directory) as made:
            mount(made.authority, {"ca.crt": known["ca.crt"]})
            client = await dial(made.servers.url(), "test", made.servers.credentials("cli", made.ca_file))
            await client.close()


def of_the_page() -> list[Manifest]:
    """Return the issuer that the page on the NATS of the bus has for an example, and what it needs."""
    [text] = re.findall(r"```yaml\n(apiVersion: cert-manager.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return list(yaml.safe_load_all(text))


def shorten(installed: IssuedBus) -> None:
    """Have certificates of an hour, which are renewed within the minute."""
    installed.apply(ISSUER, duration="1h", renewBefore="59m30s")


def no_change() -> None:
    """Do nothing: it is renewed because it is time."""


async def renewed(installed: IssuedBus, before: Files, again: Callable[[], None]) -> dict[str, str]:
    """Have another certificate issued; it has a key of its own, and the authority is the same."""
    again()
    after = await installed.issued(before)
    assert after["tls.key"] != before["tls.key"]
    assert after["ca.crt"] == before["ca.crt"]
    return after


async def believed(made: Pods, issued: Files) -> None:
    """Assert that all names by which a server is called are believed, also by those who look closely."""
    context = ssl.create_default_context(cadata=issued["ca.crt"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13 on
    for name in (f"trellis-nats.{SYSTEM}", f"trellis-nats-1.trellis-nats-headless.{SYSTEM}.svc", "localhost"):
        await made.servers.pods[1].shown(context, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await made.servers.pods[1].shown(context, "trellis-nats.elsewhere")


async def complains(running: Running, what: str) -> bool:
    """Say whether it is not ready, and why."""
    return what in (await get_status(running.port, "/readyz"))[1]


async def goes_on(made: Pods, fleet: Fleet, watcher: Running) -> None:
    """Assert that a service sees a node, publishes that on the bus, and runs."""
    [node] = fleet.add("node")
    await eventually(lambda: any(node in subject for subject in made.received))
    assert watcher.process.returncode is None
    await watcher.ready()


async def test_the_resource_named_by_the_notes_explains_why_no_certificate_is_issued(bus: IssuedBus) -> None:
    bus.apply("absent")
    [command] = [line.strip() for line in bus.notes().splitlines() if "certificaterequest" in line]
    arguments = command.removeprefix("kubectl ").split()

    def shown() -> bool:
        return 'Referenced "Issuer" not found: issuer.cert-manager.io "absent" not found' in bus.operators.kubectl(
            *arguments
        )

    await eventually(shown, FOLLOWED_SECONDS)
    assert bus.secret() == {}
    bus.create(*authority("absent"))
    await bus.issued({})


async def test_an_upgrade_leaves_what_is_issued_alone(bus: IssuedBus) -> None:
    bus.create(*authority("lab"))
    bus.apply("lab")
    issued, before = await bus.issued({}), bus.certificate()
    bus.values = {**bus.values, "image": {"tag": "another"}}
    bus.apply("lab")
    after = bus.certificate()
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert bus.secret() == issued
    bus.uninstall()
    assert bus.secret() == issued, "cert-manager leaves it, and a new installation begins with it"


async def test_an_impossible_validity_is_refused_by_cert_manager_and_helm_alike(bus: IssuedBus) -> None:
    with pytest.raises(ChartRefusedError, match=r"renewBefore: Invalid value: .*must be greater than renewBefore"):
        bus.apply("lab", duration="1h", renewBefore="2h")
