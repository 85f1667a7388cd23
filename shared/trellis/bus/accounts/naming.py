"""Names on the NATS server that permissions refer to: consumers, inboxes.

Pure. In: service, cluster, purpose. Out: names. Called by the code that creates them and by ``permissions``, so that
both agree. Invariant: each name is known before a service runs. A NATS permission matches whole tokens, and the name of
a consumer is one token, so it contains nothing that is known at run time only, such as the creation time of a stream.
"""

from __future__ import annotations

from typing import Final

from trellis.events.subjects import escape

LAST_EVENTS: Final = "last_facts"
"""Purpose of the consumer that reads back the last published events."""


def consumer_name(service: str, purpose: str, cluster: str) -> str:
    """Return the name of a service's consumer; the purpose is a subscription's name or ``LAST_EVENTS``."""
    return f"{service}-{purpose}-{escape(cluster)}"


def inbox_prefix(service: str, cluster: str) -> str:
    """Return the inbox prefix of a service, so that its NATS user can be limited to its own replies."""
    return f"_INBOX_{service}.{escape(cluster)}"


CLAIM_BUCKET: Final = "TRELLIS_CLUSTERS"
CLAIM_STREAM: Final = f"KV_{CLAIM_BUCKET}"
"""The stream of the bucket with the claims to cluster names."""
CLAIM_SUBJECTS: Final = f"$KV.{CLAIM_BUCKET}.>"


def claim_subject(cluster: str) -> str:
    """Return the subject of the claim to a cluster name."""
    return f"$KV.{CLAIM_BUCKET}.{escape(cluster)}"
