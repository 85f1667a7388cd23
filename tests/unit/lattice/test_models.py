"""wadm's applications, read from what a real wadm answered."""

from __future__ import annotations

import json

import pytest

from support.lattices.lattice_recordings import replies
from trellis.lattice.domain.models import MODELS_MOST, read_models, read_statuses
from trellis.lattice.domain.reading import LatticeDataError


def test_the_recorded_lists_are_read() -> None:
    failed, undeployed, none = (
        read_models(json.dumps(reply).encode()) for reply in replies("wadm.api.default.model.list")
    )
    (shop,) = failed
    assert (shop.name, shop.version, shop.deployed, shop.status) == ("shop", "v2", "v2", "failed")
    assert shop.message == replies("wadm.api.default.model.list")[0][0]["detailed_status"]["status"]["message"]
    (shop,) = undeployed
    assert (shop.version, shop.deployed, shop.status) == ("v2", "", "undeployed")
    assert none == ()


def test_the_other_form_of_the_list_is_read_the_same() -> None:
    (reply,) = replies("wadm.api.default.model.get")
    assert read_models(json.dumps(reply).encode()) == read_models(json.dumps(reply["models"]).encode())


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "not JSON"),
        (b"{}", "list"),
        (b"[1]", "list"),
        (b'[{"version": "v1"}]', "name"),
        (b'{"result": "error", "message": "no such bucket"}', "no such bucket"),
        (b'{"result": "error"}', "message"),
    ],
)
def test_an_invalid_list_is_refused_with_the_reason(payload: bytes, says: str) -> None:
    with pytest.raises(LatticeDataError, match=says):
        read_models(payload)


def test_a_list_that_is_longer_than_is_followed_is_refused_with_both_numbers_and_is_not_looked_through() -> None:
    listed = [
        {"name": f"a{number}", "detailed_status": {"status": {"type": "deployed"}}} for number in range(MODELS_MOST)
    ]
    assert len(read_models(json.dumps(listed).encode())) == MODELS_MOST
    longer = json.dumps([*listed, {"name": "one more"}]).encode()
    for reads in (read_models, read_statuses):
        with pytest.raises(LatticeDataError, match=r"\b10,001\b.*\b10,000\b"):
            reads(longer)
