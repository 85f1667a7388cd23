"""Nothing of an application is lost on its way to wasmCloud v2, and the API server accepts what comes out."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from secrets_backend.domain.decide import ConnectionGrant
from support.wadm.to_convert import accepted, application, strange, wrong
from trellis_cli.migrate.model.to_v2.convert import Environment, Source, convert
from trellis_cli.migrate.model.to_v2.report import Reason
from trellis_cli.secrets.model import RuleInputs

KNOWN = Environment(
    RuleInputs(ConnectionGrant(frozenset({"shop"}), frozenset({("shop", "default")})), None, frozenset(), "kube"),
    frozenset({"ui", "cart"}),
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False), environment=st.sampled_from([Environment(), KNOWN]))
def test_each_part_is_in_an_object_or_in_the_report_and_the_objects_are_valid(
    rng: random.Random, environment: Environment
) -> None:
    manifest = application(rng)
    note(repr(manifest))
    found = convert(Source(manifest, manifest["metadata"]["name"], "shop"), environment)
    assert wrong(manifest, manifest["metadata"]["name"], found) == []


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False), environment=st.sampled_from([Environment(), KNOWN]))
def test_a_strange_manifest_is_converted_without_a_loss_or_refused_as_a_whole(
    rng: random.Random, environment: Environment
) -> None:
    manifest = strange(rng, application(rng))
    note(repr(manifest)[:20_000])
    name = manifest["metadata"]["name"]
    found = convert(Source(manifest, name, "shop"), environment)
    if accepted(manifest, name):
        assert wrong(manifest, name, found) == []
    else:
        assert (found.valid, found.objects, len(found.lines)) == (False, (), 1)


@pytest.mark.parametrize("number", range(60))
def test_a_conversion_has_the_same_result_again(number: int) -> None:
    manifest = application(random.Random(number))
    source = Source(manifest, manifest["metadata"]["name"], "shop")
    assert convert(source, KNOWN) == convert(source, KNOWN)


def test_the_applications_that_are_tried_have_every_kind_of_part() -> None:
    """Reasons that no case has would be parts that the property says nothing about."""
    seen = set()
    for number in range(400):
        manifest = application(random.Random(number))
        for environment in (Environment(), KNOWN):
            source = Source(manifest, manifest["metadata"]["name"], "shop", deployed=number % 2 == 0)
            seen |= {line.reason for line in convert(source, environment).lines}
        odd = strange(random.Random(number), manifest)
        seen |= {line.reason for line in convert(Source(odd, odd["metadata"]["name"], "shop")).lines}
    rare = {
        Reason.CONFIGURATION_TOO_LARGE,
        Reason.OBJECT_TOO_LARGE,
        Reason.TOO_MANY_INTERFACES,
        Reason.CLAIMS_NOT_CHECKED,
        Reason.HOST_HEADER_TAKEN,
    }
    assert set(Reason) - rare - seen == set()
