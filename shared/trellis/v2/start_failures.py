"""Classifies why a host could not start a workload, by the message of its reply or its log.

Pure. In: a message. Out: the kind of failure with the image, registry or interfaces that it names. Called by causes.
Invariant: nothing raises; a message of an unknown form is a failure of kind ``StartFailed`` with its text. Source:
replies of ``wash host`` 2.7 to ``workload.start`` (tests/data/v2); hosts distinguish errors by their text only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trellis.v2.fields import MESSAGE_KEPT
from trellis.v2.interfaces import Interface, debugged_interfaces, named_interface
from trellis.v2.reasons import Reason
from trellis.v2.workloads import SERVICE

_PREFIX: Final = re.compile(r"\AWorkload is Error: ")
_PULL: Final = re.compile(
    r"failed to pull image for (?:(?:component|service) '(?P<component>[^']{0,200})'|the workload service)(?:: )?"
)
_FROM: Final = re.compile(r"(?:failed to pull component|timeout pulling component) from (\S{1,500}?)(?=:? |:?\Z)")
_LINKER: Final = re.compile(r"imports \w{1,20} `([^`]{1,300})`, but a matching implementation was not found")
_NO_HOST_NAME: Final = "is not a valid RFC 1123 hostname"
_UNAVAILABLE: Final = "requested interfaces that are not available"
_ABSENT: Final = re.compile(
    r"manifest.?unknown|name.?unknown|repository name not known|not found|\b404\b", re.IGNORECASE
)
_DENIED: Final = re.compile(
    r"unauthorized|denied|authentication|not authorized|forbidden|\b401\b|\b403\b", re.IGNORECASE
)
_CERTIFICATE: Final = re.compile(r"certificate|UnknownIssuer|self.signed", re.IGNORECASE)
_UNREACHABLE: Final = re.compile(
    r"connection (?:refused|reset)|dns error|failed to lookup|no route to host|network is unreachable|tcp connect error"
    r"|error sending request|timed out",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"\b[a-z]{2,10}://[^\s,()]{1,2000}")
"""URLs, which contain names of repositories and tags, and no failure."""
_SERVER_ERROR: Final = re.compile(r"\bcode: 5\d\d\b")
_CODES: Final = re.compile(r"OCI API error: ([^\[\]]{1,300})")
_LAST_PARTS: Final = ("client error (Connect): ", "failed to decode component bytes: ")
_PULL_KINDS: Final = (
    (re.compile(r"pull policy is 'Never'"), Reason.IMAGE_NOT_CACHED),
    (re.compile(r"invalid OCI reference"), Reason.IMAGE_INVALID),
    (re.compile(r"not a valid WebAssembly component|no layers found in pulled artifact"), Reason.NOT_A_COMPONENT),
    (re.compile(r"timeout pulling component|deadline has elapsed"), Reason.REGISTRY_TIMEOUT),
    (re.compile(r"InvalidContentType"), Reason.REGISTRY_WITHOUT_TLS),
    (_CERTIFICATE, Reason.REGISTRY_NOT_TRUSTED),
    (_UNREACHABLE, Reason.REGISTRY_UNREACHABLE),
    (_SERVER_ERROR, Reason.PULL_FAILED),
    (_DENIED, Reason.REGISTRY_DENIED),
    (_ABSENT, Reason.IMAGE_NOT_FOUND),
)
"""In this order: a host that asks no registry, and a registry that is unreachable or fails, have no opinion, and texts
of denials can contain "not found".
"""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A failure. ``image``, ``component``: "" if not named; ``detail``: the message without its known prefix.

    ``component`` is ``SERVICE`` for the service of a workload.
    """

    reason: Reason
    detail: str
    image: str = ""
    component: str = ""
    interfaces: tuple[Interface, ...] = ()


def classify(message: str) -> StartFailure:
    """Return the failure that a message describes."""
    text = _PREFIX.sub("", " ".join(message[:MESSAGE_KEPT].split()))
    if (pull := _PULL.search(text)) is not None:
        return _pull_failure(text, pull)
    if (missing := _LINKER.search(text)) is not None:
        named = named_interface(missing[1])
        return StartFailure(Reason.INTERFACE_MISSING, text, interfaces=(named,) if named else ())
    if _UNAVAILABLE in text:
        return StartFailure(Reason.PLUGIN_MISSING, text, interfaces=tuple(debugged_interfaces(text)))
    if "no host header found" in text.lower():
        return StartFailure(Reason.HTTP_HOST_MISSING, text)
    if _NO_HOST_NAME in text:
        return StartFailure(Reason.HTTP_HOST_INVALID, text)
    return StartFailure(Reason.START_FAILED, text)


def _pull_failure(text: str, pull: re.Match[str]) -> StartFailure:
    error, component = text[pull.end() :], pull["component"]
    image = found[1] if (found := _FROM.search(error)) else ""
    words = _ADDRESS.sub(" ", error.replace(image, " ") if image else error)
    reason = next((reason for pattern, reason in _PULL_KINDS if pattern.search(words)), Reason.PULL_FAILED)
    named = SERVICE if component is None else component
    return StartFailure(reason, _short(error or text), image, named)


def _short(text: str) -> str:
    """Return the last part of a chain of errors, which is the one that no other part of a cause repeats."""
    if codes := _CODES.findall(text):
        return ", ".join(dict.fromkeys(codes))
    for begin in _LAST_PARTS:
        text = text.rpartition(begin)[2]
    return text.partition(" - expected")[0]


DEFAULT_REGISTRY: Final = "docker.io"
"""Registry of an image that names none."""


def registry_of(image: str) -> str:
    """Return the registry of an image, "" if it names none."""
    place, slash, _ = image.partition("/")
    return place if slash and ("." in place or ":" in place or place == "localhost") else ""


def registry_asked(image: str) -> str:
    """Return the registry that hosts pull an image from."""
    return registry_of(image) or DEFAULT_REGISTRY
