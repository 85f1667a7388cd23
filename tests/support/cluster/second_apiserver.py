"""A second kube-apiserver of a control plane, on the same etcd, by a way to etcd that a test can make late or silent.

Only for a control plane of a test's own. In: the cluster. Out: ``port`` of the second server, ``store`` (its way to
etcd). Its watch cache is behind the first one's while that way is late.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Self

from support.cluster.kube_world import eventually
from support.suite.tcp_proxy import TcpProxy
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.commands import command
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.state import load


class SecondApiServer:
    """An asynchronous context manager; ready when it is entered."""

    def __init__(self, cluster: ClusterInfo, log: Path) -> None:
        layout = Layout.of(cluster.name)
        state = load(layout)
        assert state is not None
        self._layout, self._ports, self._log = layout, state.ports, log
        self.first_port = state.ports["kube-apiserver"]
        self.store = TcpProxy(LOOPBACK, state.ports["etcd"])
        (self.port,) = free_ports(1)

    async def __aenter__(self) -> Self:
        await self.store.__aenter__()
        ports = self._ports | {"etcd": self.store.port, "kube-apiserver": self.port}
        argv = command("kube-apiserver", self._layout, ports, audit=False)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)  # noqa: ASYNC220 - returns at once
        api = Api.of_pki(self.port, self._layout.pki)
        try:
            await eventually(lambda: asyncio.to_thread(api.ok, "/readyz"), "the second API server is ready", 120)
        except BaseException:
            await self.__aexit__()
            raise
        finally:
            api.close()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        await self.store.__aexit__()
