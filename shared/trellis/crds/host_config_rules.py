"""CEL rules that reject objects that could never have produced a running wasmCloud host.

Pure. Read by ``host_config``. Invariants: an object that ran under wasmcloud-operator is accepted; other errors are
reported as conditions. Each rule with its reason: docs/compat-wasmcloud-operator.md. The type of a nullable field is
tested through ``dyn``: the type checker of CEL does not support null for maps, lists and strings.
"""

from __future__ import annotations

from typing import Final

NAME_MAX: Final = 63
"""Maximum length of a label value: the name of the host group is a label of its pods."""
_LABEL: Final = "([A-Za-z0-9][A-Za-z0-9._-]{0,61})?[A-Za-z0-9]"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@[A-Za-z0-9_+.-]+:[0-9A-Fa-f]{32,})?"
"""A tag, optionally followed by a digest."""
_LABEL_FORM: Final = "at most 63 letters, digits and _ . -, with a letter or digit at both ends"


def _set(*path: str) -> str:
    """Return a CEL expression that is true if a field and all its parents exist and are not null."""
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
    ("has(self.hostReplicas) && self.hostReplicas > 2147483647", "hostReplicas: must be at most 2147483647"),
    (_PORT, "natsClientPort and natsLeafnodePort: must be at most 65535"),
    (
        f"{_set('maxLinearMemoryBytes')} && self.maxLinearMemoryBytes > 4294967295",
        "maxLinearMemoryBytes: must be at most 4294967295",
    ),
    (
        f"{_set('policyService', 'timeoutMs')} && self.policyService.timeoutMs > 4294967295",
        "policyService.timeoutMs: must be at most 4294967295",
    ),
    (_UNTAGGED, "version: must be an image tag (letters, digits, _ . -) unless spec.image is set"),
    (_image("image"), "image: must not be empty or contain white space; omit it to use the image of spec.version"),
    (_image("natsLeafImage"), "natsLeafImage: must not be empty or contain white space; omit it to use the default"),
    (_BAD_LABEL_NAME, f"hostLabels: each name is part of a pod label: {_LABEL_FORM}"),
    (_BAD_LABEL_VALUE, f"hostLabels: each value is a pod label: {_LABEL_FORM}"),
)
"""Rules of ``spec``."""

CERTIFICATES_NEVER: Final[tuple[tuple[str, str], ...]] = (
    (_SOURCELESS, "certificates.authorities: each needs secret.secretName or configMap.name"),
)
"""Rules of ``spec.certificates``: on a parent field, the API server could not estimate the rule."""

OBJECT_NEVER: Final[tuple[tuple[str, str], ...]] = (
    (
        f"self.metadata.name.size() > {NAME_MAX}",
        f"the name is longer than {NAME_MAX} characters, the maximum of a pod label",
    ),
)
"""Rules of the whole object."""
