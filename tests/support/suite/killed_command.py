"""`trellis` as a process that SIGKILL ends at its first write to the API server: before it is sent, or once it is done.

Run as ``python killed_command.py before|after <arguments of trellis>``.
"""

from __future__ import annotations

import os
import signal
import sys

from trellis.kube.transport import HttpRequest, HttpTransport, Reply
from trellis_cli.command_line import main

BEFORE, AFTER = "before", "after"
_send = HttpTransport.send


def be_killed(when: str) -> None:
    """Let this process end so."""

    async def send(self: HttpTransport, request: HttpRequest) -> Reply:
        writes = request.method != "GET" and "selfsubjectaccessreviews" not in request.path
        if writes and when == BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await _send(self, request)
        if writes:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    HttpTransport.send = send  # type: ignore[method-assign]


if __name__ == "__main__":
    be_killed(sys.argv.pop(1))
    main()
