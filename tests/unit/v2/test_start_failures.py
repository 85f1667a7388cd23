"""The report of a host about a failed start is classified, with the image and interfaces that it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.v2.recordings import SITUATIONS, recording
from trellis.v2.fields import MESSAGE_KEPT
from trellis.v2.interfaces import Interface, debugged_interfaces, named_interface, without_plugin
from trellis.v2.reasons import Reason
from trellis.v2.start_failures import classify, registry_of

PULL = "failed to pull image for component 'web': failed to pull component from {image}: {error}"
LINKER = (
    "component imports instance `acme:widgets/gizmo@1.0.0`, but a matching implementation was not found in the linker: "
    "instance export `spin` has the wrong type: function implementation is missing"
)
DEBUG = (
    "workload component Component(d81fb7b6) requested interfaces that are not available on this host: {{"
    'WitInterface {{ namespace: "acme", package: "widgets", interfaces: {{"gizmo", "crank"}}, version: Some(Version {{ '
    "major: 1, minor: 0, patch: 0{} }}), config: {{}}, name: None }}, "
    'WitInterface {{ namespace: "wasi", package: "logging", interfaces: {{"logging"}}, version: None, config: {{}}, '
    "name: None }}}}"
)
IMAGE = "registry.test:5000/team/app:1"
MESSAGES = {
    "a tag": (
        PULL.format(image=IMAGE, error="Registry error: url http://x, envelope: [OCI API error: manifest unknown]"),
        Reason.IMAGE_NOT_FOUND,
    ),
    "a repository": (PULL.format(image=IMAGE, error="[OCI API error: name unknown]"), Reason.IMAGE_NOT_FOUND),
    "refused": (
        PULL.format(image=IMAGE, error="client error (Connect): tcp connect error: Connection refused (os error 111)"),
        Reason.REGISTRY_UNREACHABLE,
    ),
    "no name": (
        PULL.format(image=IMAGE, error="error sending request: dns error: failed to lookup address information"),
        Reason.REGISTRY_UNREACHABLE,
    ),
    "http": (
        PULL.format(image=IMAGE, error="error sending request: received corrupt message of type InvalidContentType"),
        Reason.REGISTRY_WITHOUT_TLS,
    ),
    "certificate": (
        PULL.format(image=IMAGE, error="error sending request: invalid peer certificate: UnknownIssuer"),
        Reason.REGISTRY_NOT_TRUSTED,
    ),
    "login": (PULL.format(image=IMAGE, error="Not authorized: url http://x"), Reason.REGISTRY_DENIED),
    "timeout": (
        f"failed to pull image for component 'web': timeout pulling component from {IMAGE} after 30s: elapsed",
        Reason.REGISTRY_TIMEOUT,
    ),
    "a registry that fails": (
        PULL.format(image=IMAGE, error="Server error: url https://x, code: 500, message: blob not found in the store"),
        Reason.PULL_FAILED,
    ),
    "new": (PULL.format(image=IMAGE, error="the moon is full"), Reason.PULL_FAILED),
}


@pytest.mark.parametrize(("message", "reason"), MESSAGES.values(), ids=MESSAGES)
def test_a_failed_pull_is_classified_with_its_image(message: str, reason: Reason) -> None:
    found = classify(message)
    assert (found.reason, found.image, found.component) == (reason, IMAGE, "web")


@pytest.mark.parametrize(
    "image",
    [
        "registry.test/team/authentication:1",
        "registry.test/certificate/app:1",
        "registry.test/team/denied@sha256:4030",
        "registry.test/team/app:401",
        "registry.test/team/app:404",
        "[fd00::401]:5000/not-found/app:1",
        "forbidden:1",
    ],
)
def test_the_name_of_an_image_is_no_failure(image: str) -> None:
    registry, _, path = image.rpartition("/")
    url = f"https://{registry}/v2/{path.replace(':', '/manifests/')}"
    errors = {
        f"Registry error: url {url}, envelope: [OCI API error: manifest unknown]": Reason.IMAGE_NOT_FOUND,
        f"error sending request for url ({url}): client error (Connect): dns error": Reason.REGISTRY_UNREACHABLE,
        f"Server error: url {url}, code: 429, message: slow down": Reason.PULL_FAILED,
    }
    for error, reason in errors.items():
        found = classify(PULL.format(image=image, error=error).replace("'web'", "'unauthorized'"))
        assert (found.reason, found.image, found.component) == (reason, image, "unauthorized")


OTHERS = {
    "a service": (
        "failed to pull image for the workload service: failed to pull component from registry.test/a:1: name unknown",
        (Reason.IMAGE_NOT_FOUND, "registry.test/a:1", "service"),
    ),
    "a pull that its policy forbids": (
        "failed to pull image for component 'web': component not found in cache and pull policy is 'Never'",
        (Reason.IMAGE_NOT_CACHED, "", "web"),
    ),
    "no reference": (
        "failed to pull image for component 'web': invalid OCI reference: a b: invalid reference format",
        (Reason.IMAGE_INVALID, "", "web"),
    ),
    "an artifact without layers": (
        "failed to pull image for component 'web': no layers found in pulled artifact",
        (Reason.NOT_A_COMPONENT, "", "web"),
    ),
}


@pytest.mark.parametrize(("message", "expected"), OTHERS.values(), ids=OTHERS)
def test_a_failed_pull_in_other_words_is_classified(message: str, expected: tuple[Reason, str, str]) -> None:
    found = classify(message)
    assert (found.reason, found.image, found.component) == expected
    assert found.detail


def test_interfaces_are_parsed_out_of_the_debug_output() -> None:
    found = classify(f"Workload is Error: {DEBUG.format(', pre: Prerelease(' + chr(34) + 'draft' + chr(34) + ')')}")
    assert found.reason is Reason.PLUGIN_MISSING
    assert found.interfaces == (
        Interface("acme", "widgets", "crank", "1.0.0-draft"),
        Interface("acme", "widgets", "gizmo", "1.0.0-draft"),
        Interface("wasi", "logging", "logging"),
    )


def test_the_linker_names_the_interface() -> None:
    found = classify(LINKER)
    assert found.reason is Reason.INTERFACE_MISSING
    assert found.interfaces == (Interface("acme", "widgets", "gizmo", "1.0.0"),)


def test_a_message_of_another_form_is_kept_as_it_is() -> None:
    assert classify("quota of the moon").detail == "quota of the moon"
    assert classify("quota of the moon").reason is Reason.START_FAILED


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_recorded_failure_is_of_a_known_kind(name: str) -> None:
    for reply in (recording(name).messages(0, 1e9, replies=True).replies or {}).values():
        assert classify(reply.message).reason not in {Reason.START_FAILED, Reason.PULL_FAILED}, reply.message


@given(st.text(max_size=300), st.sampled_from(["", LINKER[:60], DEBUG[:90], PULL[:40]]))
def test_no_text_raises(text: str, begin: str) -> None:
    found = classify(begin + text)
    assert len(found.detail) <= MESSAGE_KEPT
    debugged_interfaces(begin + text)
    named_interface(text)
    registry_of(text)


def test_a_long_message_is_read_in_bounded_time() -> None:
    assert classify('WitInterface { namespace: "a", package: "b", interfaces: {' * 20_000).interfaces == ()


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ghcr.io/a/b:1", "ghcr.io"),
        ("localhost/a", "localhost"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000"),
        ("library/nginx", ""),
        ("nginx", ""),
        ("", ""),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry


def test_built_in_interfaces_need_no_plugin_and_any_version_fits() -> None:
    wanted = [
        Interface("wasi", "http", "incoming-handler"),
        Interface("wasi", "keyvalue", "store", "0.2.0-draft"),
        Interface("acme", "widgets", "gizmo", "1.0.0"),
    ]
    offered = frozenset({Interface("wasi", "keyvalue", "store")})
    assert without_plugin(wanted, offered) == [Interface("acme", "widgets", "gizmo", "1.0.0")]
