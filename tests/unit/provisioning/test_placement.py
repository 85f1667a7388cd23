"""The placement of pods on a RuntimeClass, and amounts of resources."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.provisioning.placement import Placement, Toleration
from trellis.provisioning.quantities import same_amount

SCHEDULING: dict[str, Any] = {
    "nodeSelector": {"a": "1", "b": ""},
    "tolerations": [
        {"operator": "Exists"},
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0},
    ],
}


def test_a_placement_is_read_back_as_it_was_written() -> None:
    assert Placement.of(SCHEDULING).scheduling() == SCHEDULING
    assert Placement.of(None) == Placement.of({"nodeSelector": None, "tolerations": None}) == Placement()
    assert Placement().scheduling() == {"nodeSelector": {}}


def test_an_empty_field_is_a_missing_one() -> None:
    assert Toleration.of({"key": "k", "value": "", "effect": None}) == Toleration("k")
    assert Toleration("k").manifest() == {"key": "k"}


@pytest.mark.parametrize(
    ("labels", "selects"),
    [({"a": "1", "b": "", "c": "x"}, True), ({"a": "1"}, False), ({"a": "2", "b": ""}, False)],
    ids=["all labels", "one is missing", "one has another value"],
)
def test_a_node_needs_all_labels(labels: dict[str, str], *, selects: bool) -> None:
    assert Placement.of(SCHEDULING).selects(labels) is selects


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1024Mi", "1Gi", True),
        ("0.5", "500m", True),
        ("1e3", "1k", True),
        ("1E", "1000P", True),
        ("1Mi", "1M", False),
        ("0", "0m", True),
        (".5Gi", "512Mi", True),
        ("soon", "soon", True),
        ("soon", "later", False),
        ("1 Mi", "1Mi", False),
    ],
)
def test_amounts_are_compared_and_not_their_texts(one: str, other: str, *, same: bool) -> None:
    assert same_amount(one, other) is same
