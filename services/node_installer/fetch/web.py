"""Downloads over HTTPS: with proxies, with custom CAs, complete files or none.

In: an address. Out: a file and its SHA-256. Called by ``stage`` and ``oci``. Only the standard library: an HTTP client
package would double the image's packages (ADR 18).
Invariants: plain http only if it is allowed, redirects included; credentials never follow a redirect to another host
and are never part of a message; a truncated download is an error, never a short file.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any, Final

from node_installer.domain.errors import InstallError
from trellis.installer_api.parse_int import whole
from trellis.installer_api.redaction import redact_url
from trellis.installer_api.result import FailureReason
from trellis.oci.challenge import basic

MAX_DOWNLOAD_BYTES: Final = 1 << 30
_BLOCK: Final = 1 << 18
_ATTEMPTS: Final = 3
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a server, read completely: for manifests and tokens, not for shims.

    ``moved``: it is of another origin than the requested one, because of redirects.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Web:
    """An HTTP client. ``ca_file``: CAs trusted besides the system's. ``seconds``: timeout for the start of an answer.

    ``pause``: seconds before the second attempt, twice that before the third.
    """

    allow_http: bool = False
    ca_file: Path | None = None
    seconds: float = 30.0
    pause: float = 1.0

    def download(
        self, url: str, target: Path, *, headers: Mapping[str, str] | None = None, limit: int = MAX_DOWNLOAD_BYTES
    ) -> str:
        """Download an address to a file, and return its SHA-256; three attempts in case of transient failures.

        Raises:
            InstallError: ``DownloadFailed`` or ``InsecureSource``.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._open(url, headers or {}) as answer:
                    return _store(answer, target, limit)
            except InstallError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                if attempt == _ATTEMPTS or not _transient(error):
                    raise _failed(url, error) from error
                time.sleep(self.pause * 2 ** (attempt - 1))
        raise AssertionError

    def get(self, url: str, headers: Mapping[str, str], limit: int = 8 << 20) -> Response:
        """Return a small answer; a status of 400 and more is an answer, too.

        Raises:
            InstallError: ``DownloadFailed`` or ``InsecureSource``.
        """
        shown = redact_url(url)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._open(url, headers) as answer:
                    body = answer.read(limit + 1)
                    headers_of = _lower(answer.headers)
                _check_size(len(body), limit, shown)
                return Response(answer.status, headers_of, body, _moved(url, answer.url))
            except urllib.error.HTTPError as error:
                if error.code not in _TRANSIENT or attempt == _ATTEMPTS:
                    with error:
                        return Response(error.code, _lower(error.headers), error.read(limit), _moved(url, error.url))
            except InstallError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                if attempt == _ATTEMPTS or not _transient(error):
                    raise _failed(url, error) from error
            time.sleep(self.pause * 2 ** (attempt - 1))
        raise AssertionError

    def _open(self, url: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 (what an opener returns has no better type)
        self.check_scheme(url)
        url, credentials = _without_credentials(url)
        if credentials:
            headers = {"Authorization": credentials, **headers}
        request = urllib.request.Request(url, headers={"User-Agent": "trellis-node-installer"})  # noqa: S310 (checked)
        for name, value in headers.items():
            # Other headers follow a redirect to another host; this kind does not.
            if name.lower() == "authorization":
                request.add_unredirected_header(name, value)
            else:
                request.add_header(name, value)
        return opener(url, self.ca_file, _Redirects(self)).open(request, timeout=self.seconds)

    def check_scheme(self, url: str) -> None:
        """Reject an address whose content could be changed in transit.

        Raises:
            InstallError: ``InsecureSource``.
        """
        scheme = url.partition("://")[0].lower()
        if scheme == "https" or (scheme == "http" and self.allow_http):
            return
        message = f"{redact_url(url)} is not https: the content could be changed in transit; set allowHttp to allow it"
        raise InstallError(FailureReason.INSECURE_SOURCE, message)


def opener(url: str, ca_file: Path | None, *handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """Return an opener for an address: with the environment's proxies, the system's CAs and those of a file.

    Raises:
        InstallError: ``DownloadFailed``: the file cannot be read.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            reason = error.strerror or error
            message = f"the CA file {ca_file} cannot be read ({reason}): does its ConfigMap exist?"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message) from error
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(_proxies(url)), urllib.request.HTTPSHandler(context=context), *handlers
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, web: Web) -> None:
        self._web = web

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        self._web.check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _check_size(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise InstallError(FailureReason.DOWNLOAD_FAILED, f"{what} is larger than {limit} bytes: it is not a shim")


def _store(answer: http.client.HTTPResponse, target: Path, limit: int) -> str:
    expected = answer.headers.get("Content-Length")
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        while block := answer.read(_BLOCK):
            size += len(block)
            _check_size(size, limit, "the download")
            digest.update(block)
            file.write(block)
    wanted = whole(expected)
    if wanted is not None and size != wanted:
        # http.client reports only truncated chunked answers, not this one.
        raise http.client.IncompleteRead(b"", wanted - size)
    return digest.hexdigest()


def _without_credentials(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    return parts._replace(netloc=host).geturl(), basic(urllib.parse.unquote(userinfo))


def _moved(url: str, final: str) -> bool:
    requested, answered = urllib.parse.urlsplit(_without_credentials(url)[0]), urllib.parse.urlsplit(final)
    return (requested.scheme, requested.netloc) != (answered.scheme, answered.netloc)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _transient(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _TRANSIENT
    if isinstance(error, urllib.error.URLError):
        return not isinstance(error.reason, ssl.SSLError)
    return isinstance(error, OSError | http.client.HTTPException)


def _failed(url: str, error: Exception) -> InstallError:
    proxy = _proxy(url)
    if isinstance(error, urllib.error.HTTPError):
        text, proxy = f"the server answers {error.code} {error.reason}", ""
    elif isinstance(error, http.client.IncompleteRead):
        text = f"the connection was cut, {error.expected} bytes are missing"
    elif isinstance(error, urllib.error.URLError):
        text = str(getattr(error.reason, "strerror", None) or error.reason)
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            text += "; provide the CA that signed it as the CA file"
    else:
        text = str(getattr(error, "strerror", None) or error or type(error).__name__)
    by = f" through the proxy {proxy}" if proxy else ""
    return InstallError(FailureReason.DOWNLOAD_FAILED, f"cannot fetch {redact_url(url)}{by}: {redact_url(text)}")


def _proxies(url: str) -> dict[str, str]:
    return {} if _bypassed(url) else urllib.request.getproxies()


def _proxy(url: str) -> str:
    """Return host and port of the proxy for an address, without its credentials; empty without a proxy."""
    try:
        proxy = _proxies(url).get(urllib.parse.urlsplit(url).scheme, "")
    except ValueError:  # not an address
        return ""
    return proxy.rpartition("://")[2].partition("/")[0].rpartition("@")[2]


def _bypassed(url: str) -> bool:
    """Return whether a host is reached without the proxy, by names and by networks.

    Clusters list networks (10.0.0.0/8) in NO_PROXY, which the standard library does not read.
    """
    host = urllib.parse.urlsplit(url).hostname or ""
    if urllib.request.proxy_bypass(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for item in urllib.request.getproxies().get("no", "").split(","):
        try:
            if address in ipaddress.ip_network(item.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
