"""The manifests as they are sent, and what must hold for any node."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.domain.resources import Installer, Task, make_installer_job
from support.suite.golden import Golden
from trellis import names
from trellis.installer_api.spec import InstallSpec, Source, WantedShim
from trellis.provisioning.ledger import Entry, Ledger, make_ledger, read_ledger
from trellis.provisioning.views import KWASM, Target
from trellis_dev.testing.builders import DIGEST, a_node

LEGACY = Installer(
    image="ghcr.io/kwasm/kwasm-node-installer:main",
    own_image="registry.example.com/node-installer:1",
    pull_policy="IfNotPresent",
    handler=None,
    namespace="trellis-installers",
    deadline=600,
    retries=2,
    cpu="50m",
    memory="128Mi",
    service_account="default",
)
OLD = Task(Target(((KWASM, DIGEST),)))
SPIN = WantedShim("spin-v2", "spin", DIGEST, "trellis", (Source("https://example.com/spin", "amd64", "ab" * 32),))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LONG = ".".join(["a" * 60] * 4) + "." + "b" * 9

node_names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True)


def test_the_legacy_installer_job(golden: Golden) -> None:
    golden.check("provisioner/job-legacy", make_installer_job(LEGACY, a_node(), OLD, 1, TRACE))


def test_the_job_of_a_known_handler_without_a_trace(golden: Golden) -> None:
    installer = replace(LEGACY, image="registry.example.com/installer:1")
    task = replace(OLD, handlers=("spin",))
    golden.check("provisioner/job-handler", make_installer_job(installer, a_node("ip-10-0-0-1.ec2"), task, 2, None))


def test_the_job_of_a_node_with_the_longest_name(golden: Golden) -> None:
    golden.check("provisioner/job-long-name", make_installer_job(LEGACY, a_node(LONG, uid="uid-1"), OLD, 1, None))


def test_the_job_that_installs_shims(golden: Golden) -> None:
    task = Task(Target((("spin-v2", DIGEST),)), handlers=("spin",), spec=InstallSpec((SPIN,)))
    golden.check("provisioner/job-shims", make_installer_job(LEGACY, a_node(), task, 1, TRACE))


def test_the_job_that_removes_the_last_shim_though_pods_use_it(golden: Golden) -> None:
    task = Task(Target(()), removed_handlers=("spin",), spec=InstallSpec((SPIN,)), removes=True, force=True)
    golden.check("provisioner/job-removal", make_installer_job(LEGACY, a_node(), task, 1, None))


@pytest.mark.parametrize("removes", [False, True])
def test_no_installer_has_a_token_and_each_privilege_is_documented(removes: bool) -> None:
    """Of docs/security/privileges.md, "Installer privileges": nothing may come to it unseen."""
    ours = Task(Target((("spin-v2", DIGEST),)), handlers=("spin",), spec=InstallSpec((SPIN,)), removes=removes)
    for task in (OLD, ours):
        pod = make_installer_job(LEGACY, a_node(), task, 1, TRACE)["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert {name for name in pod if name.startswith("host")} == {"hostPID"}
        assert "securityContext" not in pod
        assert [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume] == ["/"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["securityContext"] == {"privileged": True}
            assert not {"ports", "envFrom", "livenessProbe"} & set(container)


def test_the_ledger(golden: Golden) -> None:
    ledger = Ledger(
        {"uid-b": Entry(DIGEST, 2, 1700000000), "uid-a": Entry(DIGEST, 1, 1700000001)},
        halted=(KWASM,),
        halts_published=(KWASM,),
    )
    golden.check("provisioner/ledger", make_ledger("trellis-system", ledger, "42"))


@given(name=node_names, uid=st.uuids().map(str), attempt=st.integers(1, 10**6))
def test_every_name_and_label_fits_kubernetes(name: str, uid: str, attempt: int) -> None:
    job = make_installer_job(LEGACY, a_node(name, uid=uid), OLD, attempt, None)
    # the longest derived name is the pod's: the Job's and six characters
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?", job["metadata"]["name"])
    for value in [*job["metadata"]["labels"].values(), names.provisioned_label_value(name)]:
        assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value)


@given(node_names, node_names, st.lists(st.uuids().map(str), min_size=2, max_size=2, unique=True))
def test_two_nodes_never_share_a_job_name(name: str, other: str, uids: list[str]) -> None:
    first = names.installer_job_name(name, uids[0], DIGEST, "provision", 1)
    second = names.installer_job_name(other, uids[1], DIGEST, "provision", 1)
    assert first != second


shims = st.sampled_from([(KWASM,), ("slight", "spin.v2")])


@given(
    entries=st.dictionaries(
        st.uuids().map(str),
        st.builds(Entry, st.just(DIGEST), st.integers(1, 10**6), st.integers(0, 2**40), shims, st.booleans()),
        max_size=20,
    ),
    halted=shims,
    halts_published=shims,
)
def test_a_ledger_is_read_back_as_it_was_written(
    entries: dict[str, Entry], halted: tuple[str, ...], halts_published: tuple[str, ...]
) -> None:
    ledger = Ledger(entries, halted, halts_published)
    assert read_ledger(make_ledger("ns", ledger, None)) == ledger


def test_any_suffix_of_a_ledger_entry_means_unconfirmed() -> None:
    """An entry that a former version wrote has another word."""
    manifest = {"metadata": {}, "data": {"uid-1": f"{DIGEST}/1/5/spin/other"}}
    assert read_ledger(manifest).entries == {"uid-1": Entry(DIGEST, 1, 5, ("spin",), unconfirmed=True)}


@pytest.mark.parametrize("value", ["", "x", "a/b/c", "d/1", "/1/2", "d/1/-2"])
def test_a_broken_ledger_entry_is_left_out(value: str) -> None:
    manifest = {"metadata": {}, "data": {"uid-1": value, "uid-2": f"{DIGEST}/1/5"}}
    assert read_ledger(manifest).entries == {"uid-2": Entry(DIGEST, 1, 5)}
