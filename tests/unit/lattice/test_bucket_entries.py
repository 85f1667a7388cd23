"""Entries of wadm's bucket for one lattice, with any other lattices that share its keys."""

from __future__ import annotations

import gc
import itertools
import json
import tracemalloc
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.lattice.domain.bucket_entries import VERSIONS_KEPT, BucketEntries, Entry, TooManyError
from trellis.lattice.domain.digests import Digests, digest_of
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.store import AbsenceReason, StoredManifest, StoredModel


def model(name: str, *versions: str, deployed: str | None = None) -> bytes:
    manifests = {
        version: {"metadata": {"name": name, "annotations": {"version": version}}, "spec": {"components": []}}
        for version in versions or ("v1",)
    }
    return json.dumps({"manifests": manifests, "deployed_version": deployed}).encode()


def names(*listed: str) -> bytes:
    return json.dumps(listed).encode()


class Bucket:
    """Entries as a stream has them: each with the next sequence."""

    def __init__(self, lattice: str = "l") -> None:
        self.stored = BucketEntries(lattice)
        self.stored.begin("first")
        self._sequence = itertools.count(1)

    def take(self, key: str, value: bytes | None) -> set[str]:
        return self.stored.take(Entry(key, next(self._sequence), value))

    def again(self, bucket: str, *entries: tuple[str, bytes | None]) -> set[str]:
        self.stored.begin(bucket)
        for key, value in entries:
            self.take(key, value)
        return self.stored.complete()


def sorted_names(found: Iterable[str]) -> list[str]:
    return sorted(found)


def test_an_application_is_read_with_its_versions_the_oldest_first() -> None:
    bucket = Bucket()
    assert bucket.take("l-web", model("web", "v2", "v1", deployed="v2")) == {"web"}
    found = bucket.stored.find("web")
    assert found is not None
    assert [version for version, _ in found.versions] == ["v2", "v1"]
    assert (found.name, found.deployed, found.revision) == ("web", "v2", 1)
    assert sorted_names(bucket.stored.names()) == ["web"]


def test_an_entry_of_another_bucket_is_another_although_key_and_sequence_are_the_same() -> None:
    stored = BucketEntries("l")
    for made, version in (("first", "v1"), ("second", "v2")):
        stored.begin(made)
        assert stored.take(Entry("l-web", 1, model("web", version))) == {"web"}
        stored.complete()
        found = stored.find("web")
        assert found is not None
        assert [item for item, _ in found.versions] == [version]


def test_a_deletion_by_wadm_is_verified() -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    assert bucket.take("l", names("web")) == {"web"}
    assert bucket.take("l", names()) == {"web"}
    assert bucket.stored.find("web") is not None
    assert bucket.take("l-web", None) == {"web"}
    assert bucket.stored.find("web") is None
    assert bucket.stored.absence("web") is AbsenceReason.DELETED


def test_an_application_whose_name_did_not_reach_the_list_is_not_listed() -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    assert not bucket.stored.listed("web")
    bucket.take("l", names("other"))
    assert not bucket.stored.listed("web")
    assert bucket.take("l", names("other", "web")) == {"web"}
    assert bucket.stored.listed("web")
    bucket.take("l", model("l"))
    assert bucket.stored.listed("web"), "wadm could not write its list, whatever is put"


PROVES_NOTHING: dict[str, tuple[list[tuple[str, bytes | None]], AbsenceReason]] = {
    "purged by hand, and still listed": ([("l", names("web")), ("l-web", None)], AbsenceReason.UNKNOWN),
    "purged, and the list too": ([("l", names("web")), ("l-web", None), ("l", None)], AbsenceReason.LOST),
    "purged, and never a list": ([("l-web", None)], AbsenceReason.LOST),
    "no entry, and not listed": ([("l", names("other"))], AbsenceReason.UNKNOWN),
    "no entry, and listed": ([("l", names("web"))], AbsenceReason.UNKNOWN),
    "nothing at all": ([], AbsenceReason.LOST),
    "another lattice's list is purged": ([("l", names()), ("l-w", None)], AbsenceReason.UNKNOWN),
    "another lattice has the key": ([("l", names()), ("l-web", model("b"))], AbsenceReason.UNKNOWN),
    "another lattice has the list's key": ([("l", model("l")), ("l-web", None)], AbsenceReason.LOST),
}


@pytest.mark.parametrize("case", PROVES_NOTHING)
def test_nothing_else_proves_that_an_application_was_deleted(case: str) -> None:
    entries, proof = PROVES_NOTHING[case]
    bucket = Bucket()
    for key, value in entries:
        bucket.take(key, value)
    bucket.stored.complete()
    assert bucket.stored.find("web") is None
    assert bucket.stored.absence("web") is proof


def test_lattices_whose_keys_are_alike_are_distinguished_by_the_value() -> None:
    short, long = Bucket("a"), Bucket("a-b")
    for bucket in (short, long):
        bucket.take("a-b-c", model("b-c"))
        bucket.take("a-b-d", model("d"))
        bucket.take("a-b", names("d"))
        bucket.take("a", names("b-c"))
    assert sorted_names(short.stored.names()) == ["b-c"]
    assert sorted_names(long.stored.names()) == ["d"]
    assert short.stored.find("b-d") is None


def test_a_deletion_in_another_lattice_of_the_same_key_proves_nothing() -> None:
    bucket = Bucket("a")
    bucket.take("a", names("b-c"))
    bucket.take("a-b-c", model("b-c"))
    bucket.take("a-b-c", model("c"))  # lattice a-b puts c: it has the key from now on
    assert bucket.stored.find("b-c") is None
    bucket.take("a-b", names())
    bucket.take("a-b-c", None)
    assert bucket.stored.absence("b-c") is AbsenceReason.UNKNOWN


def test_a_recreated_bucket_lost_the_content_of_the_former() -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    bucket.take("l", names("web"))
    bucket.stored.complete()
    bucket.again("second", ("l-other", model("other")), ("l", names("other")))
    assert bucket.stored.absence("web") is AbsenceReason.LOST
    assert bucket.stored.absence("never") is AbsenceReason.UNKNOWN
    bucket.take("l-web", model("web"))
    bucket.take("l", names("other"))
    bucket.take("l-web", None)
    assert bucket.stored.absence("web") is AbsenceReason.DELETED


def test_entries_that_a_new_reading_lacks_are_forgotten_at_its_end() -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    bucket.take("l-api", model("api"))
    bucket.take("l", names("web", "api"))
    bucket.stored.complete()
    bucket.stored.begin("first")
    assert bucket.stored.find("web") is not None
    bucket.take("l-api", model("api"))
    assert bucket.stored.complete() == {"web", "api"}
    assert bucket.stored.find("web") is None
    assert bucket.stored.find("api") is not None
    assert bucket.stored.absence("web") is AbsenceReason.LOST


def test_an_entry_that_is_read_again_is_no_change() -> None:
    stored = BucketEntries("l")
    entries = [Entry("l-web", 1, model("web")), Entry("l", 2, names("web"))]
    for _ in range(2):
        stored.begin("first")
        changed = set().union(*(stored.take(entry) for entry in entries)) | stored.complete()
    assert changed == set()


GARBAGE = [b"", b"{", b"null", b"5", b'"web"', b'{"manifests": {}}', b'{"manifests": {"v1": 5}}',
           b'{"manifests": {"v1": {}}}', b'{"manifests": {"v1": {"metadata": {}}}}',
           b'{"manifests": {"v1": {"metadata": {"name": "web"}}}, "deployed_version": 5}', b'{"manifests": []}',
           b"\xff\xfe", b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("value", GARBAGE)
def test_a_value_that_is_none_changes_nothing(value: bytes) -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    with pytest.raises(LatticeDataError):
        bucket.take("l-web", value)
    bucket.stored.complete()
    assert bucket.stored.find("web") is not None


@pytest.mark.parametrize("value", [b"", b"{", b"5", b"[5]", b'["web", null]'])
def test_a_list_that_is_none_changes_nothing(value: bytes) -> None:
    bucket = Bucket()
    bucket.take("l", names())
    bucket.take("l-web", None)
    with pytest.raises(LatticeDataError):
        bucket.take("l", value)
    assert bucket.stored.absence("web") is AbsenceReason.DELETED


def test_of_too_many_versions_the_newest_are_kept_and_the_deployed_one() -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web", *(f"v{at}" for at in range(VERSIONS_KEPT + 5)), deployed="v2"))
    found = bucket.stored.find("web")
    assert found is not None
    assert [version for version, _ in found.versions] == ["v2", *(f"v{at}" for at in range(5, VERSIONS_KEPT + 5))]


NAMES = ("a", "b", "a-b", "b-a", "a-b-a")
DEEDS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "purge", "read"]), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    max_size=25,
)


class Wadm:
    """Writes what wadm writes for each deed, in its order, for lattices whose keys are alike; purges are a person's."""

    def __init__(self) -> None:
        self.reads = {lattice: BucketEntries(lattice) for lattice in ("a", "a-b")}
        self.lists: dict[str, set[str]] = {}
        self._kept: dict[str, Entry] = {}
        self._sequence = itertools.count(1)
        for read in self.reads.values():
            read.begin("first")

    def put(self, lattice: str, name: str) -> None:
        self._write(f"{lattice}-{name}", model(name))
        self.lists.setdefault(lattice, set()).add(name)
        self._write(lattice, names(*self.lists[lattice]))

    def delete(self, lattice: str, name: str) -> None:
        if name in self.lists.get(lattice, ()):
            self.lists[lattice].discard(name)
            self._write(lattice, names(*self.lists[lattice]))
            self.purge(lattice, name)

    def purge(self, lattice: str, name: str) -> None:
        self._write(f"{lattice}-{name}", None)

    def read(self, lattice: str, name: str) -> None:
        del lattice, name
        for read in self.reads.values():
            read.begin("first")
            for entry in sorted(self._kept.values(), key=lambda item: item.sequence):
                read.take(entry)
            read.complete()

    def _write(self, key: str, value: bytes | None) -> None:
        self._kept[key] = Entry(key, next(self._sequence), value)
        for read in self.reads.values():
            read.take(self._kept[key])


@given(DEEDS)
def test_an_application_listed_by_wadm_is_never_deleted(deeds: list[tuple[str, str, str]]) -> None:
    wadm = Wadm()
    for deed, lattice, name in deeds:
        getattr(wadm, deed)(lattice, name)
        for of, read in wadm.reads.items():
            deleted = {
                name for name in NAMES if read.find(name) is None and read.absence(name) is AbsenceReason.DELETED
            }
            assert not deleted & wadm.lists.get(of, set())


@given(DEEDS)
def test_a_full_read_gives_the_same_state_as_following(deeds: list[tuple[str, str, str]]) -> None:
    wadm = Wadm()
    for deed, lattice, name in deeds:
        getattr(wadm, deed)(lattice, name)
    followed = {of: [(read.find(name), read.absence(name)) for name in NAMES] for of, read in wadm.reads.items()}
    wadm.reads = {of: BucketEntries(of) for of in wadm.reads}
    wadm.read("", "")
    assert {
        of: [(read.find(name), read.absence(name)) for name in NAMES] for of, read in wadm.reads.items()
    } == followed


def test_a_manifest_is_read_as_it_was_stored_and_its_spec_is_the_same_in_any_order() -> None:
    spec: dict[str, Any] = {"components": [], "policies": [1, 2.5, None]}
    manifest = {"metadata": {"name": "web"}, "spec": spec}
    turned = {"spec": dict(reversed(spec.items())), "metadata": {"name": "web"}}
    kept = StoredManifest.of(manifest)
    assert kept.read() == manifest
    assert kept == StoredManifest.of(turned), "wadm keeps no order"
    assert kept.spec != StoredManifest.of({"spec": {"components": [1]}}).spec
    assert [StoredManifest.of(none).spec for none in ({}, {"spec": None})] == [b"", b""]


def test_versions_take_the_memory_of_their_text() -> None:
    components = [{"name": f"c{at}", "properties": {"image": f"example.com/c:{at}"}} for at in range(20)]
    spec = json.dumps({"components": components}).encode()
    values = [model(f"app-{at}", *map(str, range(20))).replace(b'{"components": []}', spec) for at in range(50)]
    stored = BucketEntries("l")
    stored.begin("b")
    gc.collect()
    tracemalloc.start()
    try:
        for at, value in enumerate(values):
            stored.take(Entry(f"l-app-{at}", at, value))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(stored.names()) == len(values)
    assert taken < 2 * sum(map(len, values))


def test_a_digest_is_computed_again_only_for_other_content(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []

    def counting(manifest: Mapping[str, Any]) -> str:
        computed.append(manifest)
        return digest_of(manifest)

    monkeypatch.setattr("trellis.lattice.domain.digests.digest_of", counting)
    digests = Digests()

    def stored(text: str) -> StoredModel:
        manifest = {"metadata": {"name": "web", "annotations": {"note": text}}, "spec": {"components": []}}
        versions = (("v1", StoredManifest.of(manifest)), ("v2", StoredManifest.of({"metadata": 5})))
        return StoredModel("web", versions, "", 1)

    first = digests.of(stored("one"))
    assert digests.of(stored("one")) == first
    assert len(computed) == 2
    assert [version for version, _ in first] == ["v1", "v2"]
    second = digests.of(stored("two"))
    assert second[0] != first[0]
    assert second[1] == first[1]
    assert len(computed) == 3


@pytest.mark.parametrize(
    ("bound", "most", "entries"),
    [
        ("MODELS_MOST", 3, [("l-a", model("a")), ("l-b", model("b")), ("l-c", model("c"))]),
        ("BYTES_MOST", 3 * len(model("a")), [("l-a", model("a")), ("l-b", model("b")), ("l-c", model("c"))]),
        ("KEYS_MOST", 3, [("l-a", None), ("l-b", names("x")), ("l-c", model("c"))]),
    ],
    ids=["applications", "bytes", "keys"],
)
def test_a_lattice_with_more_than_is_kept_is_not_known_at_every_pass_until_it_has_less(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, entries: list[tuple[str, bytes | None]]
) -> None:
    monkeypatch.setattr(f"trellis.lattice.domain.bucket_entries.{bound}", most)
    bucket = Bucket()
    bucket.again("first", *entries)
    for _ in range(3):
        with pytest.raises(TooManyError, match=r"\bwadm storage\b"):
            bucket.again("first", *entries, ("l-d", model("d")))
    bucket.again("first", *entries[1:], ("l-d", model("d")))
    assert bucket.stored.find("d") is not None
    bucket.take("l-d", model("d"))  # again, with nothing more in it
    with pytest.raises(TooManyError):
        bucket.take("l-e", model("e"))


def test_deleted_and_foreign_entries_take_no_space_of_applications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trellis.lattice.domain.bucket_entries.MODELS_MOST", 1)
    monkeypatch.setattr("trellis.lattice.domain.bucket_entries.BYTES_MOST", len(model("kept")))
    bucket = Bucket()
    for number in range(5):
        bucket.take(f"l-{number}", None)
        bucket.take(f"l-eu-{number}", model(f"{number}"))
        bucket.take(f"other-{number}", model("kept"))
    assert bucket.take("l-kept", model("kept")) == {"kept"}


@pytest.mark.parametrize("levels", [260, 900])
def test_a_manifest_nested_too_deep_changes_nothing_and_is_named(levels: int) -> None:
    bucket = Bucket()
    bucket.take("l-web", model("web"))
    nested = b'{"a":' * levels + b"1" + b"}" * levels
    deep = b'{"manifests": {"v2": {"metadata": {"name": "web"}, "spec": ' + nested + b"}}}"
    with pytest.raises(LatticeDataError, match=r"\bl-web\b"):
        bucket.take("l-web", deep)
    found = bucket.stored.find("web")
    assert found is not None
    assert [version for version, _ in found.versions] == ["v1"]
    Digests().of(found)
    shallow = b'{"a":' * 240 + b"1" + b"}" * 240
    bucket.take("l-web", deep.replace(nested, shallow))
    found = bucket.stored.find("web")
    assert found is not None
    Digests().of(found)
