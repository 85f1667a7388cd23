"""What could never have produced a running wasmCloud host, and is therefore refused: CEL, with messages for people.

Pure. Read by ``host_config``. Invariants: an object that ran under wasmcloud-operator is accepted; whatever else is
wrong becomes a condition. Each rule, and why it holds: docs/compat-wasmcloud-operator.md. A field that may be null has
to be asked for its type through ``dyn``: CEL's checker knows no null for maps, lists and strings.
"""

from __future__ import annotations

from typing import Final

NAME_MAX: Final = 63
"""Pods are labelled with the group's name."""
_LABEL: Final = "([A-Za-z0-9][A-Za-z0-9._-]{0,61})?[A-Za-z0-9]"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@[A-Za-z0-9_+.-]+:[0-9A-Fa-f]{32,})?"
"""A tag, with a digest behind it if wanted."""
_LABEL_WORDS: Final = "at most 63 letters, digits and _ . -, with a letter or digit at both ends"


def _set(*path: str) -> str:
    """Return that a field, and all that it is in, is there and not null."""
    places = ["self." + ".".join(path[: depth + 1]) for depth in range(len(path))]
    return " && ".join(f"has({place}) && type(dyn({place})) != null_type" for place in places)


def _image(field: str) -> str:
    return f"{_set(field)} && !self.{field}.matches('^[^\\\\s]+$')"


_PORT: Final = " || ".join(
    f"(has(self.{field}) && self.{field} > 65535)" for field in ("natsClientPort", "natsLeafnodePort")
)
_UNTAGGED: Final = f"!({_set('image')}) && has(self.version) && !self.version.matches('^{_TAG}$')"
_BAD_LABEL_NAME: Final = f"{_set('hostLabels')} && self.hostLabels.exists(k, !k.matches('^{_LABEL}$'))"
_BAD_LABEL_VALUE: Final = (
    f"{_set('hostLabels')} && self.hostLabels.exists(k, !self.hostLabels[k].matches('^({_LABEL})?$'))"
)
_SOURCELESS: Final = (
    f"{_set('authorities')} && self.authorities.exists(a, "
    "!(has(a.secret) && has(a.secret.secretName)) && !(has(a.configMap) && has(a.configMap.name)))"
)

SPEC_NEVER: Final[tuple[tuple[str, str], ...]] = (
    ("has(self.hostReplicas) && self.hostReplicas > 2147483647", "hostReplicas: Kubernetes takes at most 2147483647"),
    (_PORT, "natsClientPort and natsLeafnodePort: a port is at most 65535"),
    (
        f"{_set('maxLinearMemoryBytes')} && self.maxLinearMemoryBytes > 4294967295",
        "maxLinearMemoryBytes: a component has at most 4294967295 bytes",
    ),
    (
        f"{_set('policyService', 'timeoutMs')} && self.policyService.timeoutMs > 4294967295",
        "policyService.timeoutMs: is at most 4294967295",
    ),
    (_UNTAGGED, "version: is no tag of an image (letters, digits, _ . -), and there is no spec.image in its place"),
    (_image("image"), "image: is empty or has white space in it; leave it out for the image of spec.version"),
    (_image("natsLeafImage"), "natsLeafImage: is empty or has white space in it; leave it out for the default"),
    (_BAD_LABEL_NAME, f"hostLabels: each name becomes part of a label of pods: {_LABEL_WORDS}"),
    (_BAD_LABEL_VALUE, f"hostLabels: each value becomes a label of pods: {_LABEL_WORDS}"),
)
"""Of ``spec``."""

CERTIFICATES_NEVER: Final[tuple[tuple[str, str], ...]] = (
    (_SOURCELESS, "certificates.authorities: each needs secret.secretName or configMap.name"),
)
"""Of ``spec.certificates``: further out, the API server cannot tell what the rule costs at most."""

OBJECT_NEVER: Final[tuple[tuple[str, str], ...]] = (
    (
        f"self.metadata.name.size() > {NAME_MAX}",
        f"the name is longer than {NAME_MAX} characters, which is the most a label of pods may have",
    ),
)
"""Of the whole object."""
