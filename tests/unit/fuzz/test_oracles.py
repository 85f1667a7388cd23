"""Each oracle can detect a wrong parser: one is broken by hand, and some case of its target finds it."""

# ruff: noqa: ARG005 (what stands in for a parser takes what it took)

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from application_manager.domain.sides import Side, Win
from fuzz.catalogue import TARGETS
from fuzz.limits import TooLong
from trellis.config.nats_credentials import Kind
from trellis.lattice.domain.store import AbsenceReason
from trellis.telemetry import TraceContext

CASES = 3_000

Breaking = Callable[[Any], Any]


def instead(value: Any) -> Breaking:
    return lambda _: value


_ANY_PATH = re.compile(
    r"(?P<registry>[a-zA-Z0-9.-]+(?::[0-9]+)?)/(?P<repository>.+?)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


BROKEN: dict[str, tuple[str, Breaking]] = {
    "facts": ("fuzz.targets.bus:_MODELS", lambda models: dict.fromkeys(models, next(iter(models.values())))),
    "names-in-subjects": ("fuzz.targets.bus:escape", instead(lambda name: name.replace(".", "=2E") or "=")),
    "event-patterns": ("fuzz.targets.bus:pattern_filter", lambda good: lambda pattern, cluster: good(pattern, None)),
    "dead-letters": ("trellis.bus.dead_letters.write:header_bytes", instead(lambda headers: 0)),
    "garbage-in-the-dead-letters": ("trellis.bus.dead_letters.read:is_event_subject", instead(lambda subject: True)),
    "wadm-replies": ("trellis.lattice.domain.replies:_answer", instead(lambda payload, *expected: json.loads(payload))),
    "wadm-bucket": (
        "trellis.lattice.domain.bucket_entries:BucketEntries.absence",
        instead(lambda self, name: AbsenceReason.DELETED),
    ),
    "lattice-events": (
        "trellis.lattice.follow.forwarder:copied_event",
        instead(lambda subject: subject.split(".")[-1]),
    ),
    "manifests": ("trellis.lattice.domain.projection:_Reader._configs", instead(lambda self, holder, key, place: [])),
    "applications-for-v2": ("trellis_cli.migrate.model.to_v2.convert:is_label", instead(lambda key, value: True)),
    "named-configurations": ("trellis.lattice.wadm.configurations:SETTINGS", lambda good: (*good, "password")),
    "listen-addresses": ("trellis.lattice.domain.addresses:read_port", instead(lambda text, whole: 80)),
    "lattice-subjects": ("trellis.lattice.domain.subjects:_TOKEN", instead(re.compile(".+", re.DOTALL))),
    "custom-resources": ("application_manager.domain.views:_win", instead(lambda item: Win(Side(item["side"]), 0.0))),
    "marks-on-nodes-and-jobs": ("trellis.provisioning.views:whole", instead(int)),
    "books-in-kubernetes": ("trellis.limits.breaker_record:_count", instead(lambda value: 0)),
    "durations-counts-quantities": ("trellis.config.durations:_UNITS", lambda good: good | {"m": 1.0}),
    "addresses-of-modules": ("trellis.registries.domain.addresses:_meant", instead(lambda address: [address])),
    "label-selectors": ("controller_host.domain.watch_specs:Term.holds", instead(lambda self, labels: True)),
    "redaction": ("trellis.installer_api.redaction:_USERINFO", instead(re.compile("://(?P<user>[^:@/]*):[^@/]*@"))),
    "trace-contexts": ("fuzz.targets.written:trace_from", instead(TraceContext)),
    "settings": ("trellis.config.errors:redact_url", instead(str)),
    "containerd-configs": ("node_installer.containerd.config:_without_ours", instead(str)),
    "containerd-templates": ("node_installer.containerd.toml_text:_JOINED", instead("")),
    "installer-specs": ("trellis.installer_api.spec:_OWNER", instead(re.compile(".+", re.DOTALL))),
    "termination-messages": ("trellis.installer_api.result:_shortened", instead(lambda value, cut: value)),
    "installer-books": ("node_installer.domain.state:_text", instead(lambda value: value)),
    "import-patterns": ("node_installer.containerd.globs:_class", instead(lambda text: text)),
    "cri-replies": ("node_installer.node.cri:read_json", instead(json.loads)),
    "shim-archives": ("node_installer.fetch.archive:copy_limited", instead(lambda origin, target: target.touch())),
    "image-layers": ("trellis.registries.domain.layers:_hide", instead(lambda modules, path, itself: None)),
    "wasm-modules": ("controller_host.guest.rewriting:_data_span", instead(lambda binary: (0, 0))),
    "guest-calls": ("controller_host.domain.calls:name_of", instead(lambda fields, name: str(fields.get("name")))),
    "image-references": ("trellis.oci.references:_IMAGE", instead(_ANY_PATH)),
    "registries": ("trellis.oci.manifests:rows", instead(lambda document, key: document.get(key) or [])),
    "kubernetes-answers": ("trellis.kube.errors:whole", instead(int)),
    "secret-requests": ("secrets_backend.domain.tokens:_verifies", instead(lambda signed, signature, key: True)),
    "nkeys": ("trellis.config.nkey:_intact", instead(lambda raw: True)),
    "bus-credentials": ("fuzz.targets.keys:identity_of", lambda good: lambda text, _: good(text, Kind.NKEY)),
    "curve-keys": ("fuzz.targets.keys:data_of", instead(lambda ring: {})),
}


def test_every_target_is_here() -> None:
    assert BROKEN.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_a_parser_that_is_broken_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, path = BROKEN[name][0].partition(":")
    holder: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    monkeypatch.setattr(holder, last, BROKEN[name][1](getattr(holder, last)))
    assert any(_is_wrong(name, number) for number in range(CASES))


def _is_wrong(name: str, number: int) -> bool:
    try:
        TARGETS[name].verdict(number)
    except (Exception, TooLong):  # noqa: BLE001 (whatever an oracle finds)
        return True
    return False
