"""A Jaeger that real nodes and their pods reach: by https, with a CA of its own, as collectors of clusters have it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.nodes.https_files import machine_address
from trellis_dev.localcluster import ClusterInfo
from unit.node_installer.servers import Answer, Request, certificates, serving

_SECONDS = 20.0


@dataclass(frozen=True)
class Collector:
    """``url``: where spans go; ``authority``: its CA (PEM); ``jaeger``: where traces are asked for."""

    url: str
    authority: str
    jaeger: str

    def traces(self, service: str) -> list[dict[str, Any]]:
        """Return the traces that a service has spans in, as Jaeger's API gives them."""
        with urllib.request.urlopen(f"{self.jaeger}/api/traces?service={service}&limit=1000", timeout=_SECONDS) as got:
            return list(json.load(got)["data"])


@contextmanager
def https_collector(cluster: ClusterInfo, folder: Path) -> Iterator[Collector]:
    """Pass on to the cluster's Jaeger what is sent by TLS to this machine; ``folder`` gets the keys."""
    address = machine_address(cluster)
    tls = certificates(folder, address)

    def pass_on(request: Request) -> Answer:
        headers = {"Content-Type": request.headers["content-type"]}
        onward = urllib.request.Request(f"{cluster.otlp_endpoint}{request.path}", request.body, headers)
        with urllib.request.urlopen(onward, timeout=_SECONDS) as answer:
            return Answer(answer.status, answer.read())

    with serving(pass_on, tls, address) as server:
        assert cluster.jaeger_url is not None
        yield Collector(server.url, (tls / "ca.pem").read_text(encoding="utf-8"), cluster.jaeger_url)
