"""Names on the NATS server that permissions refer to: consumers, inboxes.

Pure. In: service, cluster, purpose. Out: names. Called by the code that creates them and by ``permissions``, so that
both agree. Invariant: each name is known before a service runs. A NATS permission matches whole tokens, and the name of
a consumer is one token, so it contains nothing that is known at run time only, such as the creation time of a stream.
"""

from __future__ import annotations

from typing import Final

from trellis.events.subjects import escape

LAST_FACTS: Final = "last_facts"
"""Purpose of the consumer that reads back what was said."""


def consumer_name(service: str, purpose: str, cluster: str) -> str:
    """Return the name of a service's consumer; the purpose is a subscription's name or ``LAST_FACTS``."""
    return f"{service}-{purpose}-{escape(cluster)}"


def inbox_prefix(service: str, cluster: str) -> str:
    """Return what every inbox of a service begins with, so that its user may be allowed its own answers only."""
    return f"_INBOX_{service}.{escape(cluster)}"


CLAIM_BUCKET: Final = "TRELLIS_CLUSTERS"
CLAIM_STREAM: Final = f"KV_{CLAIM_BUCKET}"
"""The stream of the bucket that says which cluster has which name on the bus."""
CLAIM_SUBJECTS: Final = f"$KV.{CLAIM_BUCKET}.>"


def claim_subject(cluster: str) -> str:
    """Return where the claim of a cluster's name stands."""
    return f"$KV.{CLAIM_BUCKET}.{escape(cluster)}"
