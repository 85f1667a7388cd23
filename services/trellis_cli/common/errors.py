"""Errors of commands as one line on standard error, worded like kubectl, with the remedy.

In: errors of the layers below. Out: a line and an exit status: 2 for an invalid setting, 1 for all other errors. Called
around every command. Invariant: an outage never shows a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trellis.bus.errors import BusError, BusUnavailable
from trellis.config.settings import SettingsError
from trellis.installer_api.redaction import redact_url
from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unavailable
from trellis.kube.network_errors import NOT_TRUSTED
from trellis.read_model.errors import AnswerError
from trellis_cli.common.messages import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, print_error


class CommandError(AnswerError):
    """A command failed; the text is one line with the remedy."""


def advice(error: Exception) -> str:
    """Return the remedy, "" if there is none besides the error text."""
    match error:
        case Unavailable() if NOT_TRUSTED in error.message:
            return "set certificate-authority of the cluster in the kubeconfig to the CA of its certificate"
        case Unavailable():
            return "check that the API server runs, or select another with --kubeconfig or --context"
        case Unauthorized():
            return "log in again, or select other credentials with --kubeconfig or --context"
        case Forbidden():
            return "use another context, or have the permission granted"
        case NotFound(verb="LIST", call=call):
            return f"retry when `kubectl get {call.resource}` works"
        case NotFound():
            return "check that Trellis is installed in the cluster, and that TRELLIS_NAMESPACE is its namespace"
        case BusUnavailable():
            return "check that NATS runs, or select another with --nats-url or TRELLIS_NATS_URL"
        case _:
            return ""


def describe_error(error: Exception) -> str:
    """Return one line: the error, then the remedy."""
    text = redact_url(" ".join(_text(error).split())) or type(error).__name__
    return "; ".join(part for part in (text, advice(error)) if part)


def _text(error: Exception) -> str:
    """Return an error worded like kubectl; messages of the server are unchanged."""
    match error:
        case NotFound(verb="LIST", call=call):
            return f'the server does not have the resource type "{call.resource}"'
        case NotFound(call=call) if call.name:
            place = f" in namespace {call.namespace}" if call.namespace else ""
            return f'{call.kind} "{call.name}" not found{place}'
        case Unauthorized():
            return "you must be logged in to the server (Unauthorized)"
        case Unavailable() if not error.status:  # whichever request was the first: the server is named, not the call
            return error.message
        case Forbidden():
            return error.message
        case _:
            return str(error)


@contextmanager
def exit_on_error(*expected: type[Exception]) -> Iterator[None]:
    """Convert errors of Kubernetes, the bus, settings and ``expected`` to a line on stderr and an exit status."""
    handled: tuple[type[Exception], ...] = (KubeError, BusError, AnswerError, *expected)
    try:
        yield
    except SettingsError as error:
        print_error(str(error))
        raise SystemExit(EXIT_USAGE) from None
    except handled as error:
        print_error(describe_error(error))
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
