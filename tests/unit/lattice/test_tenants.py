"""The lattice of a tenant and others in the account of a wadm that serves several."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.bucket_entries import BucketEntries, Entry
from trellis.lattice.domain.models import read_statuses
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import UNDEPLOYED, Scaler, Status
from trellis.lattice.domain.store import AbsenceReason
from trellis.lattice.domain.subjects import (
    account_of,
    configuration_ask_subject,
    copied_event,
    event_of,
    event_streams,
    event_subject,
    event_subjects,
    model_get_subject,
    model_list_key,
    model_list_subject,
    model_put_subject,
    model_subject,
    status_of,
)

LETTERS = string.ascii_letters + string.digits + "-_"
NAMES = st.text(LETTERS, min_size=1, max_size=60)
ACCOUNTS = st.text(string.ascii_uppercase + "234567", max_size=55).map(lambda text: "A" + text)
NKEY = "ADETPT36WBIBUKM3IBCVM4A5YUSDXFEJPW4M6GGVBYCBW7RRNFTV5NGE"


def address(lattice: str, prefix: str) -> LatticeAddress:
    return LatticeAddress(NatsAddress("nats://127.0.0.1"), lattice, prefix)


@pytest.mark.parametrize(
    ("prefix", "account"),
    [
        (f"{NKEY}.wasmbus.ctl", NKEY),
        ("Axxx.wasmbus.ctl", "Axxx"),
        ("wasmbus.ctl", ""),
        ("my.ctl", ""),
        ("acme.wasmbus.ctl", ""),
        ("Axxx.my.ctl", ""),
        ("Axxx.wasmbus.ctl.v1", ""),
        ("my.Axxx.wasmbus.ctl", ""),
        ("Axxxwasmbus.ctl", ""),
        ("A:x.wasmbus.ctl", ""),
        ("AxxxXwasmbusXctl", ""),
        (".wasmbus.ctl", ""),
        ("", ""),
    ],
)
def test_a_control_prefix_names_a_tenant_as_wadm_takes_one(prefix: str, account: str) -> None:
    assert account_of(prefix) == account


def test_a_tenants_lattice_is_identified_by_its_account() -> None:
    ours, theirs = address("default", "Axxx.wasmbus.ctl"), address("default", "Ayyy.wasmbus.ctl")
    assert (ours.name, ours.token) == ("Axxx/default", "Axxx-default")
    assert ours.token != theirs.token
    plain = address("prod_1", "wasmbus.ctl")
    assert (plain.account, plain.name, plain.token) == ("", "prod_1", "prod_1")


@given(account=st.one_of(st.just(""), ACCOUNTS), lattice=NAMES, application=NAMES)
def test_requests_have_the_account_before_them_and_are_plain_without(
    account: str, lattice: str, application: str
) -> None:
    before = f"{account}." if account else ""
    api = f"{before}wadm.api.{lattice}.model"
    assert model_list_subject(lattice, account) == f"{api}.list"
    assert model_put_subject(lattice, account) == f"{api}.put"
    assert model_subject(lattice, "deploy", application, account) == f"{api}.deploy.{application}"
    assert model_get_subject(lattice, application, account) == f"{api}.get.{application}"
    assert event_streams(lattice, account) == {
        "wadm_events": f"wadm.evt.{lattice}.>",
        "wasmbus_events": f"{before}wasmbus.evt.{lattice}.>",
    }
    assert model_list_key(lattice, account) == (f"{account}-{lattice}" if account else lattice)


@given(
    account=st.one_of(st.just(""), ACCOUNTS), lattice=NAMES, event=st.sampled_from(["host_heartbeat", "linkdef_set"])
)
def test_an_event_is_recognised_on_any_prefix(account: str, lattice: str, event: str) -> None:
    subjects = event_subjects(lattice, event, account)
    assert subjects[0] == event_subject(lattice, event, account)
    assert len(subjects) == (2 if account else 1)
    for subject in subjects:
        assert event_of(subject) == event
        assert copied_event(subject) == (event if event == "linkdef_set" else None)


@given(st.text(LETTERS + ".*>", max_size=80))
def test_any_subject_is_about_something_or_nothing(subject: str) -> None:
    tokens = subject.split(".")
    event = event_of(subject)
    assert event in {None, tokens[-1]}
    assert copied_event(subject) in {None, tokens[-1]}
    assert status_of(subject) in {None, tokens[-1]}


@pytest.mark.parametrize(
    "subject",
    ["a.b.wasmbus.evt.l.host_stopped", "Axxx.wadm.evt.l.manifest_published", "Axxx.wasmbus.evt.host_stopped"],
)
def test_more_than_an_account_before_an_event_is_another_subject(subject: str) -> None:
    assert event_of(subject) is None
    assert copied_event(subject) is None


def test_a_configuration_is_requested_from_a_host_under_the_control_prefix() -> None:
    subject = configuration_ask_subject("default", "web", "Axxx.wasmbus.ctl")
    assert subject == "Axxx.wasmbus.ctl.v1.default.config.get.web"


def entry(key: str, sequence: int, value: object) -> Entry:
    return Entry(key, sequence, None if value is None else json.dumps(value).encode())


def stored(name: str) -> dict[str, object]:
    return {"manifests": {"v1": {"metadata": {"name": name}}}, "deployed_version": "v1"}


@given(mine=ACCOUNTS, theirs=ACCOUNTS, lattice=NAMES, name=NAMES)
def test_an_entry_of_another_tenant_is_ignored(mine: str, theirs: str, lattice: str, name: str) -> None:
    reads = BucketEntries(model_list_key(lattice, mine))
    reads.begin("one")
    for sequence, account in enumerate((mine, theirs, ""), 1):
        key = model_list_key(lattice, account)
        reads.take(entry(key, 2 * sequence, [name]))
        reads.take(entry(f"{key}-{name}", 2 * sequence + 1, stored(name)))
    reads.complete()
    assert list(reads.names()) == [name]
    found = reads.find(name)
    assert found is not None
    assert found.revision == (5 if theirs == mine else 3)


@given(mine=ACCOUNTS, theirs=ACCOUNTS, lattice=NAMES, name=NAMES)
def test_a_deletion_is_verified_by_the_tenants_own_entries(mine: str, theirs: str, lattice: str, name: str) -> None:
    reads = BucketEntries(model_list_key(lattice, mine))
    reads.begin("one")
    ours, other = model_list_key(lattice, mine), model_list_key(lattice, theirs)
    reads.take(entry(f"{ours}-{name}", 1, stored(name)))
    reads.take(entry(ours, 2, [name]))
    reads.take(entry(other, 3, []))
    reads.take(entry(f"{other}-{name}", 4, None))
    reads.complete()
    if mine != theirs:
        assert reads.find(name) is not None
    reads.take(entry(ours, 5, []))
    reads.take(entry(f"{ours}-{name}", 6, None))
    assert reads.find(name) is None
    assert reads.absence(name) is AbsenceReason.DELETED


def listed(*items: object) -> bytes:
    return json.dumps(list(items)).encode()


def test_a_list_gives_the_same_statuses_as_single_requests() -> None:
    scaler = {"id": "1", "kind": "SpreadScaler", "name": "web-echo", "status": {"type": "failed", "message": "no host"}}
    waits = {"type": "waiting", "message": "Waiting for status: Lattice contains no hosts, deployment not started."}
    found = read_statuses(
        listed(
            {"name": "web", "detailed_status": {"status": {"type": "failed", "message": "m"}, "scalers": [scaler]}},
            {"name": "new", "detailed_status": {"status": waits, "scalers": []}},
            {"name": "later", "detailed_status": {"status": {**waits, "message": "for a host"}, "scalers": []}},
            {"name": "old", "status": "deployed"},
            {"detailed_status": {"status": {"type": "failed"}}},
        )
    )
    assert found == {
        "web": Status("failed", "m", (Scaler("SpreadScaler", "web-echo", "failed", "no host"),)),
        "new": UNDEPLOYED,
        "later": Status("waiting", "for a host"),
    }


def test_an_invalid_list_states_the_reason() -> None:
    with pytest.raises(LatticeDataError, match="storage"):
        read_statuses(b'{"result": "error", "message": "Internal storage error"}')
