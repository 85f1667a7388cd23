"""Applications of wasmCloud v1 on their way to v2: no part is lost, and the API server accepts the objects."""

from __future__ import annotations

import random
from typing import Any

import yaml

from fuzz.target import Target, jsonable
from secrets_backend.domain.decide import ConnectionGrant
from support.suite.mutations import dumped, mutated_often
from support.wadm.to_convert import accepted, application, strange, wrong
from trellis_cli.common.output import yaml_of
from trellis_cli.migrate.model.to_v2.convert import Environment, Source, convert
from trellis_cli.secrets.model import RuleInputs

_GRANT = ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")}))
_KNOWN = Environment(RuleInputs(_GRANT, None, frozenset(), "kube"), frozenset({"ui", "cart"}))


def _application(rng: random.Random) -> tuple[Any, bool]:
    manifest = application(rng)
    changed = strange(rng, manifest) if rng.random() < 0.3 else mutated_often(rng, manifest)
    return jsonable(dumped(rng, changed)), rng.random() < 0.5


def _judge(case: tuple[Any, bool]) -> str:
    manifest, known = case
    found = convert(Source(manifest, "", "shop"), _KNOWN if known else Environment())
    assert found.valid is accepted(manifest)
    if not found.valid:
        assert (found.objects, len(found.lines)) == ((), 1)
        return "refused"
    problems = wrong(manifest, "", found)
    assert problems == []
    assert all(yaml.safe_load(yaml_of(item)) == item for item in found.objects)
    return "objects" if found.objects else "only a report"


CONVERSION = Target(
    "applications-for-v2",
    "OAM manifests that are converted to workloads of wasmCloud v2",
    "each part is in an object or the report; objects are valid, also as YAML; no credential is shown; else one line",
    _application,
    _judge,
    frozenset({"objects", "only a report", "refused"}),
    share=8,
)
TARGETS = (CONVERSION,)
