"""Static files of the page, built beforehand and each read once.

In: a directory. Out: a handler. Called by ``app``. Invariants: only files of that directory are served; browsers may
cache only names with a digest, without a time limit.
"""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path
from typing import Final

from aiohttp import web

from console.http.refusals import RefusedError

DIRECTORY: Final = Path(__file__).parents[1] / "static"
INDEX: Final = "index.html"
_LASTING: Final = re.compile(r"assets/.*[-.][A-Za-z0-9_-]{8,}\.[a-z0-9]+")
_IMMUTABLE: Final = "public, max-age=31536000, immutable"


class Assets:
    """All files of a page, in memory: their number and size is small."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._files = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Return a file; for other addresses outside of the API the page, which has its own router.

        Raises:
            RefusedError: the file does not exist, or the page is not built.
        """
        name = request.match_info["path"] or INDEX
        if name not in self._files and "." not in name.rpartition("/")[2] and not name.startswith("api/"):
            name = INDEX
        body = self._files.get(name)
        if body is None and name == INDEX:
            raise RefusedError(
                503, "the page is not built", "build it in a checkout with `trellis dev page`, which requires node"
            )
        if body is None:
            raise RefusedError(404, "not found", "docs/console/api.md lists the addresses")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        charset = "utf-8" if kind.startswith("text/") or kind.endswith(("javascript", "json")) else None
        lasting = _LASTING.fullmatch(name) is not None
        headers = {"Cache-Control": _IMMUTABLE if lasting else "no-store"}
        return web.Response(body=body, content_type=kind, charset=charset, headers=headers)
