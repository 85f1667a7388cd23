"""The part of the rollout ledger about pods."""

from __future__ import annotations

import json

import pytest

from trellis.provisioning.ledger import Ledger, make_ledger, read_ledger
from trellis.provisioning.workload_state import (
    Baseline,
    WorkloadHalt,
    WorkloadState,
    decode_states,
    encode_states,
    size_of,
)

BASELINE = Baseline("node-1", 1_000, {"0123456789": (2, 3)})
HALT = WorkloadHalt("WorkloadNotReady", 1_100, "pod shop/web-1: it failed", "shop/web-1", "node-1", "ShimError")
STATES = {
    "spin": WorkloadState("v2", {"uid-1": BASELINE}, 1_030, 0, HALT),
    "slight": WorkloadState("v1", {}, 0, 1_050),
}


def test_the_ledger_keeps_the_states_of_pods() -> None:
    ledger = Ledger({}, workloads=STATES)
    assert read_ledger(make_ledger("ns", ledger, None)) == ledger


def test_a_ledger_without_states_has_no_key_for_them() -> None:
    assert make_ledger("ns", Ledger({}), None)["data"] == {}


@pytest.mark.parametrize(
    "text",
    [None, "", "[", "[]", "3", '{"spin": 3}', '{"spin": {"content": 1}}', "[" * 5_000],
    ids=["None", "empty", "cut", "list", "number", "no object", "no version", "nested"],
)
def test_an_invalid_text_has_no_states(text: str | None) -> None:
    assert decode_states(text) == {}


def test_an_invalid_part_affects_no_other() -> None:
    document = json.loads(encode_states(STATES))
    document["spin"]["nodes"] |= {"uid-2": ["node-2", "x", {}], "uid-3": 3}
    document["spin"]["nodes"]["uid-1"][2]["x"] = [1]
    document["spin"]["halt"] = ["short"]
    document["other"] = None
    found = decode_states(json.dumps(document))
    assert found["spin"].baselines == {"uid-1": BASELINE}
    assert found["spin"].halt is None
    assert found["slight"] == STATES["slight"]


def test_the_size_does_not_depend_on_the_names_of_owners() -> None:
    many = Baseline("node-1", 1_000, {f"{index:010x}": (1, 1) for index in range(500)})
    assert size_of(many) < 16 * 2**10
    assert size_of(many) >= len(encode_states({"s": WorkloadState("", {"u" * 36: many})})) - 100
