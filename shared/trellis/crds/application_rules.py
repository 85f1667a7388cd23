"""What wadm refuses of a manifest and admission can tell already: CEL, with messages for people.

Pure. Read by ``application``. Invariant: nothing that wadm 0.21 takes is refused, but for more components or traits
than the API server can check. Source: wadm's own checks (wadm-types 0.8: names, images and shared components, and that
a trait it knows has the properties of a link or of a scaler, whichever it is called). What these rules cannot see, as
where a link leads, is told by the condition Rejected in wadm's words.
"""

from __future__ import annotations

from typing import Final

_SCALERS: Final = "['spreadscaler', 'daemonscaler']"
_IS_LINK: Final = "(has(self.properties.namespace) && has(self.properties.package) && has(self.properties.interfaces))"
_IS_SCALER: Final = "(has(self.properties.instances) != has(self.properties.replicas))"

OBJECT_RULES: Final = (
    (
        "!self.metadata.name.contains('.')",
        "the name has a dot in it, which wadm takes in no name; use - or _ in its place",
    ),
)
"""Of the whole object."""

_NOTHING_OF_ITS_OWN: Final = " && ".join(
    f"(!has(self.{one}) || self.{one}.size() == 0)" for one in ("config", "secrets")
)

PROPERTIES_RULES: Final = (
    (
        "has(self.image) != has(self.application)",
        "needs either image, or application for what another application shares",
    ),
    (
        f"!has(self.application) || ({_NOTHING_OF_ITS_OWN})",
        "what another application shares has its config and its secrets there",
    ),
)
"""Of the properties of a component."""

COMPONENT_RULES: Final = (
    (
        f"!has(self.properties.application) || !has(self.traits) || !self.traits.exists(one, one.type in {_SCALERS})",
        "what another application shares is scaled there: leave the scaler out",
    ),
)
"""Of a component."""

TRAIT_RULES: Final = (
    (
        f"self.type != 'link' || {_IS_LINK} || {_IS_SCALER}",
        "a link needs properties.namespace, package and interfaces, and a target",
    ),
    (
        f"!(self.type in {_SCALERS}) || {_IS_SCALER} || {_IS_LINK}",
        "a scaler needs properties.instances, or replicas, which is its former name",
    ),
)
"""Of a trait."""
