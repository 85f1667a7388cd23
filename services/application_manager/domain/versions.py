"""Names of the versions under which wadm stores manifests.

Pure. Called by ``decide``. Invariant: wadm rejects other content for an existing version, so that none is requested;
a manifest that is stored already gets the version in which it is.
"""

from __future__ import annotations

from application_manager.domain.sides import OVERRIDDEN, Model

_LENGTHS = (8, 12, 64)
_PLAIN = (12, 64)


def version_of(wanted: str, digest: str, model: Model | None) -> str:
    """Return the version for a manifest of this digest.

    The annotation, if wadm has no other content under it, else ``<annotation>-<digest8>``; without an annotation the
    newest version with the same content, else ``sha-<digest12>``.

    Args:
        wanted: the annotation, "" if there is none.
        digest: of the manifest, in hex digits.
        model: the model in wadm, None if there is none.
    """
    has = {} if model is None else model.digests
    if not wanted:
        same = [name for name, existing in has.items() if existing == digest and not name.startswith(OVERRIDDEN)]
        if same:
            return same[-1]
    names = ([wanted] if wanted else []) + [
        f"{wanted or 'sha'}-{digest[:length]}" for length in (_LENGTHS if wanted else _PLAIN)
    ]
    return next((name for name in names if has.get(name, digest) == digest), names[-1])


def overridden_version(digest: str) -> str:
    """Return the version that preserves an overridden manifest."""
    return f"{OVERRIDDEN}{digest[:12]}"


def spare_version(digest: str, model: Model) -> str:
    """Return a new version for a manifest that is only stored, and never shown or run."""
    plain, has = overridden_version(digest), model.digests
    numbered = (f"{plain}-{number}" for number in range(2, len(has) + 3))
    return next(name for name in (plain, *numbered) if name not in has)
