"""A git repository that is served over HTTP as forges serve it, by git's own program.

In: a folder. Out: the address of a bare repository, and commits of what a test changes. Called by tests of operators
that keep a cluster as it stands in git. Invariant: it listens on the loopback address alone, takes no pushes, and ends
with its block. The checkout and the repository are files of the test's own.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from trellis_dev.localcluster.ports import LOOPBACK

_BRANCH: Final = "main"
_SECONDS: Final = 60
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Test"), ("EMAIL", "test@example.com"))
}


@dataclass(frozen=True)
class GitServer:
    """A repository: its address, and the checkout that commits are made in."""

    url: str
    checkout: Path

    def commit(self, change: Callable[[Path], object]) -> str:
        """Change files of the checkout, publish that as a commit of the one branch, and return its id."""
        change(self.checkout)
        _git(self.checkout, "add", "--all")
        _git(self.checkout, "commit", "--quiet", "--message", "change")
        _git(self.checkout, "push", "--quiet", "origin", _BRANCH)
        return _git(self.checkout, "rev-parse", "HEAD").strip()


@contextmanager
def git_server(folder: Path, name: str) -> Iterator[GitServer]:
    """Serve an empty repository for the time of a block; ``folder`` is not there yet."""
    served, checkout = folder / "served", folder / "checkout"
    checkout.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--bare", f"--initial-branch={_BRANCH}", f"served/{name}.git")
    _git(checkout, "init", "--quiet", f"--initial-branch={_BRANCH}")
    _git(checkout, "remote", "add", "origin", str(served / f"{name}.git"))
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), partial(_Handler, served)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield GitServer(f"http://{LOOPBACK}:{server.server_port}/{name}.git", checkout)
        finally:
            server.shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Hands requests to ``git http-backend``, which speaks CGI (RFC 3875)."""

    protocol_version = "HTTP/1.1"

    def __init__(self, served: Path, *args: object) -> None:
        self._served = served
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer what fetches begin with."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Answer what fetches go on with."""
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, body: bytes) -> None:
        target = urlsplit(self.path)
        program = shutil.which("git")
        assert program is not None
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._served),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": target.path,
            "QUERY_STRING": target.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": LOOPBACK,
        }
        done = subprocess.run(
            [program, "http-backend"], input=body, env=variables, capture_output=True, timeout=_SECONDS, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = BytesHeaderParser().parsebytes(head)
        self.send_response(int(headers.get("Status", "200").split()[0]))
        for key, value in headers.items():
            if key != "Status":
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _git(folder: Path, *arguments: str) -> str:
    program = shutil.which("git")
    assert program is not None, "git is missing: it serves the repository"
    environment = os.environ | _AUTHOR | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
