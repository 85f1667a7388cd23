"""The possible lattices of a key, and effects of a lattice that joins, leaves or is too large on others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trellis.lattice.storage.bucket import list_keys

NAMES = st.text(alphabet="ab-", min_size=1, max_size=6)


def test_an_entry_is_offered_to_every_lattice_that_its_key_can_be_of() -> None:
    assert list(list_keys("a-b-c")) == ["a-b-c", "a", "a-b"]
    assert list(list_keys("a")) == ["a"]


@given(NAMES, NAMES)
def test_every_lattice_gets_its_application_for_any_names(lattice: str, application: str) -> None:
    assert lattice in set(list_keys(f"{lattice}-{application}"))
    assert lattice in set(list_keys(lattice))


@given(NAMES, NAMES)
def test_no_lattice_is_offered_what_cannot_be_its_own(lattice: str, key: str) -> None:
    if lattice != key and not key.startswith(f"{lattice}-"):
        assert lattice not in set(list_keys(key))
