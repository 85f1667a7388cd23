"""A real API server takes the Job of a Shim from a private registry, behind a proxy, with a CA of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.shims import Shim
from support.suite.job_container import Kubelet

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


def text_of(*parts: str) -> str:
    return Path(*parts).read_text()


async def test_the_job_of_a_shim_from_a_private_registry_is_taken_as_it_is(
    fleet: Fleet, shim: Shim, tmp_path: Path
) -> None:
    [node] = shim.add_nodes(1)
    settings = {
        "installer_otlp_endpoint": "http://otel.observability:4318",
        "installer_proxy_secret": "proxy",
        "installer_no_proxy": "10.0.0.0/8,.svc",
        "installer_ca_config_map": "our-ca/root.pem",
        "installer_pull_secrets": "mirror",
    }
    source = {"image": f"registry.example.com/spin@sha256:{'ab' * 32}", "pullSecret": {"name": "team-a"}}
    async with fleet.services(**settings):
        shim.apply(fetchStrategy={"oci": source})
        # No kubelet shows the handler here: the Job stays.
        job = await eventually(lambda: fleet.job_of(node), "the Job", seconds=60)
        kubelet = Kubelet(
            tmp_path,
            secrets={"proxy": {"HTTPS_PROXY": "http://me:hunter2@proxy:3128"}, "team-a": {".dockerconfigjson": "{}"}},
            config_maps={"our-ca": {"root.pem": "PEM"}},
        )
        given = kubelet.environment(job)
        assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel.observability:4318"
        assert given["HTTPS_PROXY"] == "http://me:hunter2@proxy:3128"
        assert given["NO_PROXY"] == "10.0.0.0/8,.svc"
        assert text_of(given["TRELLIS_INSTALLER_CA_FILE"]) == "PEM"
        assert text_of(given["TRELLIS_INSTALLER_PULL_SECRETS"], "team-a", "config.json") == "{}"
        assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
