"""What went wrong, in one line for the person at the terminal, and what to do about it.

In: errors of the layers below. Out: a line on stderr and an exit status: 2 for a wrong setting, 1 for everything else.
Called around every command. Invariant: an outage never shows a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trellis.bus.errors import BusError, BusUnavailable
from trellis.config.settings import SettingsError
from trellis.installer_api.redaction import redact_url
from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unavailable
from trellis.read_model.errors import AnswerError
from trellis_cli.common.messages import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, print_error


class CommandError(AnswerError):
    """A command cannot do what it was asked; its text is one line for people and says what to do."""


def advice(error: Exception) -> str:
    """Return what to do about an error, "" if there is nothing better to say than the error itself."""
    match error:
        case Unavailable():
            return "is the API server running? choose another with --kubeconfig or --context"
        case Unauthorized():
            return "the credentials are not accepted: log in again, or choose others with --kubeconfig or --context"
        case Forbidden():
            return "this account lacks the permission: use another context, or have it granted"
        case NotFound(verb="LIST", call=call):
            return f"the API server does not serve this kind now: try again once `kubectl get {call.plural}` works"
        case NotFound():
            return "is Trellis installed in this cluster, and TRELLIS_NAMESPACE right?"
        case BusUnavailable():
            return "is NATS running? choose another with --nats-url or TRELLIS_NATS_URL"
        case _:
            return ""


def explain(error: Exception) -> str:
    """Return one line: what went wrong, then what to do."""
    text = redact_url(" ".join(str(error).split())) or type(error).__name__
    return "; ".join(part for part in (text, advice(error)) if part)


@contextmanager
def exit_on_error(*expected: type[Exception]) -> Iterator[None]:
    """Turn errors of Kubernetes, the bus, settings and ``expected`` into a line on stderr and an exit status."""
    handled: tuple[type[Exception], ...] = (KubeError, BusError, AnswerError, *expected)
    try:
        yield
    except SettingsError as error:
        print_error(str(error))
        raise SystemExit(EXIT_USAGE) from None
    except handled as error:
        print_error(explain(error))
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
