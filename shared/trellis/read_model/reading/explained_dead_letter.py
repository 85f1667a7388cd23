"""The cause of one dead letter.

Pure. In: the dead letter, as it is read from the stream. Out: the page. Called by ``explain``.
Invariant: the body, which can contain anything, is not shown here, but by ``trellis dead-letters show``.
"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.bus.dead_letters.read import DeadLetter
from trellis.installer_api.redaction import redact_url
from trellis.read_model.explain.page import Explanation, Line, Rank


def explain_dead_letter(dead_letter: DeadLetter | None, name: str) -> Explanation:
    """Return the page of a dead letter; None: it does not exist."""
    subject = f"dead letter {name}"
    if dead_letter is None:
        text, do = (
            "dead letter not found: it was replayed, or has expired",
            "`trellis dead-letters list` lists the existing ones",
        )
        return Explanation(subject, [Line("dead letter", text, False, do)], "stored")
    return Explanation(subject, [*_chain(dead_letter)], "delivered")


def _chain(dead_letter: DeadLetter) -> Iterator[Line]:
    reader, times = dead_letter.reader or "a service", dead_letter.deliveries
    tried = f" after {times} deliver{'y' if times == 1 else 'ies'}" if times is not None else ""
    reason = redact_url(dead_letter.error or "no cause is given")
    text = f"{reader} could not process it{tried}, {dead_letter.reason or 'no reason'}: {reason}"
    do = f"`trellis dead-letters show {dead_letter.sequence}` shows the message"
    if dead_letter.obstacle:
        do += "; it cannot be replayed"
    else:
        do += f"; fix the cause, then `trellis dead-letters replay {dead_letter.sequence}` publishes it again"
    yield Line("dead letter", text, False, do, Rank.CAUSE)
    yield Line("message", f"{dead_letter.subject or 'of no subject'}, {dead_letter.size} bytes")
    if dead_letter.key or dead_letter.noun:
        yield Line("about", "/".join((dead_letter.noun, *dead_letter.key)))
    if dead_letter.obstacle:
        yield Line("replay", f"impossible: {dead_letter.obstacle}", False, rank=Rank.ASIDE)
    if dead_letter.trace_id:
        yield Line("trace", dead_letter.trace_id)
