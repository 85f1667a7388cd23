"""Names of the objects that a conversion writes for a part of an application.

Pure. In: the name of an application and of its part. Out: a name. Called by ``convert``, ``configs``, ``plugins`` and
``routes``. Invariant: objects of two applications of a namespace never share a name, and the name of an object does not
depend on the presence of other applications. The object of the application itself has the plain name, as
:func:`trellis.names.service_name` returns it.
"""

from __future__ import annotations

from typing import Final

from trellis import names

_PLAIN_MOST: Final = 52
"""With ``-`` and 10 hex digits, a DNS label of 63 characters."""


def part_name(application: str, part: str, *distinct: str) -> str:
    """Return ``<application>-<part>-<h10>``, a DNS label of at most 63 characters.

    The hash is over both, and over ``distinct``, which differs between parts of the same name. Without a hash,
    ``ui-cart`` of ``shop`` and ``cart`` of ``shop-ui`` would have one name.
    """
    plain = names.service_name(f"{application}-{part}")[:_PLAIN_MOST].rstrip("-")
    return f"{plain}-{names.short_hash(application, part, *distinct)}"
