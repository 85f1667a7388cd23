"""Answers of registries about the images of workloads.

Pure values. Created by the reader of registries, used by causes. Invariant: an answer was given to the account that
runs the command, from its place in the network: a host may get another one, so only NOT_FOUND and DENIED are evidence,
and FOUND over plain http, which hosts refuse by default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trellis.v2.components import ComponentTypes
from trellis.v2.workloads import PartView

_OTHER_DIGEST: Final = re.compile(r"@sha(384:[0-9a-f]{96}|512:[0-9a-f]{128})\Z")


class ImageState(StrEnum):
    """Answer about an image. UNKNOWN: the registry did not answer, or with an error.

    WITHOUT_TLS: it speaks plain http and was asked over https. NOT_TRUSTED: its certificate is not trusted here. In
    both cases the image may exist.
    """

    FOUND = "Found"
    NOT_FOUND = "NotFound"
    DENIED = "Denied"
    INVALID = "Invalid"
    WITHOUT_TLS = "WithoutTls"
    NOT_TRUSTED = "NotTrusted"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ImageKey:
    """An image as a workload of a namespace pulls it; ``secret``: name of its pull secret, "" for none."""

    namespace: str
    image: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class ImageAnswer:
    """``detail``: the answer for users, without credentials; ``types``: None if the component was not read.

    ``plain``: the registry was asked over plain http, because it did not answer https. ``without_login``: the pull
    Secret has logins for other registries only, so the registry was asked without one.
    """

    state: ImageState
    detail: str = ""
    types: ComponentTypes | None = None
    plain: bool = False
    without_login: bool = False


def without_other_digest(image: str) -> str:
    """Return an image without a digest that hosts verify and Trellis does not, which supports sha256 only."""
    return _OTHER_DIGEST.sub("", image)


def image_key(namespace: str, part: PartView) -> ImageKey:
    """Return the key of the image of a component."""
    return ImageKey(namespace, part.image, part.secret)
