"""CEL rules that reject at admission manifests that wadm would reject.

Pure. Read by ``application``. Invariant: manifests that wadm 0.21 accepts are accepted, unless they have no component,
with which wadm runs nothing and reports ``undeployed``, or more components or traits than the API server can check.
Source: wadm's own checks (wadm-types 0.8: names, images and shared components, and that a trait of a known type has the
properties of either a link or a scaler). Other errors, such as a link to a missing component, are reported by the
condition Rejected with the message of wadm.
"""

from __future__ import annotations

from typing import Final

_SCALERS: Final = "['spreadscaler', 'daemonscaler']"
_IS_LINK: Final = "(has(self.properties.namespace) && has(self.properties.package) && has(self.properties.interfaces))"
_IS_SCALER: Final = "(has(self.properties.instances) != has(self.properties.replicas))"

OBJECT_RULES: Final = (
    (
        "!self.metadata.name.contains('.')",
        "the name contains a dot, which wadm does not accept: use - or _ instead",
    ),
)
"""Rules of the whole object."""

_NOTHING_OF_ITS_OWN: Final = " && ".join(
    f"(!has(self.{item}) || self.{item}.size() == 0)" for item in ("config", "secrets")
)

PROPERTIES_RULES: Final = (
    (
        "has(self.image) != has(self.application)",
        "needs either image, or application for a component that another application shares",
    ),
    (
        f"!has(self.application) || ({_NOTHING_OF_ITS_OWN})",
        "a shared component must not have config or secrets: set them in the application that shares it",
    ),
)
"""Rules of the properties of a component."""

COMPONENT_RULES: Final = (
    (
        f"!has(self.properties.application) || !has(self.traits) || !self.traits.exists(one, one.type in {_SCALERS})",
        "a shared component must not have a scaler: set it in the application that shares it",
    ),
)
"""Rules of a component."""

TRAIT_RULES: Final = (
    (
        f"self.type != 'link' || {_IS_LINK} || {_IS_SCALER}",
        "a link needs properties.namespace, package and interfaces, and a target",
    ),
    (
        f"!(self.type in {_SCALERS}) || {_IS_SCALER} || {_IS_LINK}",
        "a scaler needs properties.instances, or its deprecated name replicas",
    ),
)
"""Rules of a trait."""
