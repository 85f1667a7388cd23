"""The chart's NATS servers as processes: what is rendered, on ports and in directories of the test's own.

In: manifests of the chart and its hooks. Out: running servers, to be killed, ended as a pod is, and started again, and
the credentials of their users. Called by tests. Nothing of the configuration is left out: addresses, paths and the
pod's name are replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.chart.bus_secret import SERVERS_FILES, certificates_of, credentials_of, options_of, users_of
from support.chart.rendered import SYSTEM, Manifest, of
from support.nats.buses import eventually
from trellis.bus.accounts.accounts import ROUTES_FILE
from trellis.config.nats_credentials import Credentials
from trellis.services import SERVICES
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports

START_SECONDS = 60.0
END_SECONDS = 60.0
Files = Mapping[str, str]


class PodServer:
    """One server, as its pod has it."""

    def __init__(self, directory: Path, pod: Manifest, ordinal: int) -> None:
        self.directory = directory
        self.certificates = directory / "tls"
        self._pod = pod
        self._name = f"trellis-nats-{ordinal}"
        [self.monitor] = free_ports(1)
        self.route = 0
        self.server = NatsServer(directory / "server", config=directory / "nats.conf")

    def write(self, files: Files, certificates: Files, routes: list[int], ordinal: int) -> None:
        """Write its configuration with the addresses of the test."""
        self.directory.mkdir(parents=True)
        self.certificates.mkdir()
        self.renew(certificates)
        text = files["nats.conf"].replace("$POD_NAME", self._name).replace("/run/nats", str(self.directory))
        text = text.replace("/etc/nats-tls", str(self.certificates))
        text = replaced('store_dir: "/data"', "", text)  # by the command line here
        text = replaced("http_port: 8222", f"http: {LOOPBACK}:{self.monitor}", text)
        others = files.get(ROUTES_FILE, "")
        if routes:
            self.route = routes[ordinal]
            text = replaced("port: 6222", f"listen: {LOOPBACK}:{self.route}", text)
            for other, port in enumerate(routes):
                host = f"trellis-nats-{other}.trellis-nats-headless.{SYSTEM}:6222"
                others = replaced(host, f"{LOOPBACK}:{port}", others)
        for name, content in {**files, "nats.conf": text, ROUTES_FILE: others}.items():
            (self.directory / name).write_text(content, encoding="utf-8")

    def renew(self, certificates: Files) -> None:
        """Put other certificates where the server reads them."""
        mount(self.certificates, certificates)

    async def shown(self, context: ssl.SSLContext | None = None, name: str | None = None) -> bytes:
        """Return the certificate that it shows to a new connection; raises if a context and a name refuse it."""
        if context is None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(LOOPBACK, self.server.port)
        try:
            await reader.readline()
            await writer.start_tls(context, server_hostname=name)
            return bytes(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        finally:
            writer.transport.abort()

    def probe(self, name: str) -> bool:
        """Return what a probe of the pod says."""
        path = self._pod["containers"][0][name]["httpGet"]["path"]
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.monitor}{path}", timeout=5) as answer:
                return bool(json.loads(answer.read())["status"] == "ok")
        except (urllib.error.URLError, OSError):
            return False

    async def started(self) -> None:
        """Start it if it does not run, and wait until the kubelet would count it as started and ready."""
        self.server.start()
        await eventually(lambda: self.probe("startupProbe") and self.probe("readinessProbe"), START_SECONDS)

    async def ended(self) -> None:
        """End it as the kubelet does: what the pod has before its stop, then SIGTERM."""
        pid = self.server.pid
        assert pid is not None
        before = self._pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert before[0] == "nats-server"
        arguments = [argument.replace("/run/nats", str(self.directory)) for argument in before[1:]]
        before_stop = await asyncio.create_subprocess_exec(tools.ensure("nats-server"), *arguments)
        assert await asyncio.wait_for(before_stop.wait(), END_SECONDS) == 0
        os.kill(pid, signal.SIGTERM)
        await eventually(lambda: self.server.pid is None, END_SECONDS)
        self.server.stop()


class ChartServers:
    """All servers of a rendered chart. ``job``: its hooks before an installation, whose Job makes the keys."""

    def __init__(
        self, directory: Path, manifests: list[Manifest], job: list[Manifest], certificates: Files | None = None
    ) -> None:
        self._objects = of(manifests)
        self._directory = directory
        self.users = users_of(job)
        [self._cluster] = options_of(job, "cluster")
        nats = self._objects["StatefulSet", SYSTEM, "trellis-nats"]["spec"]
        count = int(nats["replicas"])
        pod, files = nats["template"]["spec"], dict(self._objects["ConfigMap", SYSTEM, "trellis-nats"]["data"])
        files |= {name: text for name, text in self.users.items() if name in SERVERS_FILES}
        routes = free_ports(count) if count > 1 else []
        self.certificates = certificates if certificates is not None else certificates_of(job)
        self.pods = [PodServer(directory / str(ordinal), pod, ordinal) for ordinal in range(count)]
        for ordinal, item in enumerate(self.pods):
            item.write(files, self.certificates, routes, ordinal)

    @property
    def reloaders(self) -> list[list[str]]:
        """Return the commands of the containers beside the servers that tell them of other certificates."""
        nats = self._objects["StatefulSet", SYSTEM, "trellis-nats"]["spec"]["template"]["spec"]
        [command] = [container["command"] for container in nats["containers"] if container["name"] == "reloader"]
        return [
            [
                part.replace("/etc/nats-tls", str(pod.certificates)).replace("/run/nats", str(pod.directory))
                for part in command
            ]
            for pod in self.pods
        ]

    @contextmanager
    def running(self) -> Iterator[ChartServers]:
        """Have them run; those of a cluster become ready together."""
        with ExitStack() as stack:
            for pod in self.pods:
                stack.enter_context(pod.server)
            yield self

    async def ready(self) -> None:
        """Wait until all are as the kubelet wants them."""
        for pod in self.pods:
            await pod.started()

    def url(self, *pods: PodServer) -> str:
        """Return the addresses of these servers, or of all."""
        scheme = "tls" if self.certificates else "nats"
        return ",".join(f"{scheme}://{LOOPBACK}:{pod.server.port}" for pod in pods or self.pods)

    def credentials(self, user: str, authority: Path | None = None) -> Credentials:
        """Return how a service or ``cli`` connects, by its seed; ``authority``: the CA certificates it knows."""
        name = f"{user}.{self._cluster}" if user in SERVICES else user
        return credentials_of(self.users, name, self._directory / "seeds", authority)


def mount(directory: Path, files: Files) -> None:
    """Put a Secret's files into a directory, or others in their place: all at once, as the kubelet does."""
    current, link = directory / "..data", directory / "..data_tmp"
    before = current.resolve() if current.exists() else None
    version = directory / f"..{secrets.token_hex(8)}"
    version.mkdir()
    for name, content in files.items():
        (version / name).write_text(content, encoding="utf-8")
    link.symlink_to(version.name)
    link.replace(current)
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path(current.name, name))
    if before is not None:
        shutil.rmtree(before)


def replaced(old: str, new: str, text: str) -> str:
    """Return a text with something replaced that has to be in it."""
    assert re.search(re.escape(old), text), f"{old} is not in it"
    return text.replace(old, new)
