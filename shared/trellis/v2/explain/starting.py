"""The cause of a placed Workload that does not run: its image, its links, or its host.

Pure. In: a Workload whose condition Sync is not True, replies of hosts, answers of registries. Out: the step with the
cause. Called by the page of a Workload. Source: runtime-operator 2.7. ``NOT_FOUND`` means that the image could not be
pulled or decoded: the host keeps no record of such a start, and its reply to the start alone has the cause. ``ERROR``
means that linking or binding failed. Invariant: without the reply, a cause is computed only from evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import outdated, timed_out, unanswered
from trellis.v2.explain.operator import source_line
from trellis.v2.explain.text import host_named, quoted
from trellis.v2.fields import listed
from trellis.v2.images import ImageAnswer, ImageState, image_key
from trellis.v2.interfaces import Interface, without_plugin
from trellis.v2.messages import WorkloadState, state_named
from trellis.v2.objects import Condition
from trellis.v2.operator import DEADLINE, NO_RESPONDERS
from trellis.v2.reasons import Reason
from trellis.v2.start_failures import StartFailure, classify, registry_asked
from trellis.v2.workloads import PartView, WorkloadView, is_host_name

_STATE: Final = re.compile(r"(WORKLOAD_STATE_[A-Z_]{1,40})(?:: (?P<cause>.+))?", re.DOTALL)
"""The state in a condition. Releases of the operator after 2.7 add the message of the host."""
_PROGRESS: Final = frozenset({WorkloadState.UNSPECIFIED, WorkloadState.STARTING, WorkloadState.STOPPING})
_NEVER: Final = "Never"
_SHOWN: Final = 5
_NOT_ASKED: Final = frozenset({ImageState.UNKNOWN, ImageState.WITHOUT_TLS, ImageState.NOT_TRUSTED})
_ENCRYPT: Final = "serve the registry over https, or start the host with --allow-insecure-registries"
_TO_FIX: Final = "correct the image in the template, or push it"
_TO_PULL: Final = "set imagePullPolicy to IfNotPresent: a host caches only images that it pulled itself"


def sync(cluster: Cluster, workload: WorkloadView, reported: Condition) -> Line:
    """Return the step for a placed Workload that is not operational."""
    state = _STATE.search(reported.message)
    if state is not None:
        return _not_operational(cluster, workload, state, reported.since)
    if NO_RESPONDERS in reported.message:
        return unanswered(cluster, workload, reported)
    if DEADLINE in reported.message:
        return timed_out(cluster, workload, reported.message)
    return known_failure(cluster, workload, reported.message) or Line(
        "sync", f"Sync is {reported.status}{quoted(reported.message)}", False, "", Rank.CAUSE, Reason.START_FAILED
    )


def reported_failure(cluster: Cluster, workload: WorkloadView) -> Line | None:
    """Return the step for a start whose failure was received before its condition; None if none was."""
    reply = cluster.failed_start(workload)
    if reply is None or reply.id != workload.id or reply.state is not WorkloadState.ERROR:
        return None
    return failed(cluster, workload, classify(reply.message))


def known_failure(cluster: Cluster, workload: WorkloadView, message: str) -> Line | None:
    """Return the step for a condition that has the message of a host about a failed start, None for any other one.

    No release up to 2.7 has it there; another one can.
    """
    failure = classify(message)
    return None if failure.reason is Reason.START_FAILED else failed(cluster, workload, failure)


def _not_operational(cluster: Cluster, workload: WorkloadView, found: re.Match[str], since: float | None) -> Line:
    """Return the step for a state on the host; ``found``: the state in the message of a condition, ``since`` its time.

    A state of a later release is a failure, because the operator does not accept it.
    """
    state, reply = state_named(found[1]), cluster.failed_start(workload)
    limit = cluster.snapshot.timings.start + cluster.snapshot.timings.slack
    if state in _PROGRESS and not cluster.older(cluster.by_server(since), limit):
        text = f"it is being started or stopped{quoted(found.string)}"
        return Line("sync", text, ok=False, reason=Reason.WAITING)
    # Of NOT_FOUND, the message repeats the state in other words.
    cause = found["cause"] or "" if state is not WorkloadState.NOT_FOUND else ""
    if not cause and reply is not None and reply.state is WorkloadState.ERROR:
        cause = reply.message
    if cause or state not in {WorkloadState.NOT_FOUND, WorkloadState.ERROR}:
        line = failed(cluster, workload, classify(cause or found.string))
    else:
        line = _image(cluster, workload) if state is WorkloadState.NOT_FOUND else next(_links(cluster, workload))
    note = outdated(cluster, workload)
    return replace(line, text=f"{line.text}; {note}") if note else line


def failed(cluster: Cluster, workload: WorkloadView, failure: StartFailure) -> Line:
    """Return the step for a failed start whose cause the host reported."""
    part = _part(workload, failure)
    image = failure.image or (part.image if part else "") or "the image"
    host, detail = host_named(cluster, workload.host_id), quoted(failure.detail)
    match failure.reason:
        case Reason.IMAGE_NOT_FOUND:
            return _cause("image", f"image {image} does not exist{detail}", _TO_FIX, failure.reason)
        case Reason.IMAGE_NOT_CACHED:
            text = f"host {host} has no cached copy of {image}, and imagePullPolicy is {_NEVER}"
            return _cause("image", text, _TO_PULL, failure.reason)
        case Reason.IMAGE_INVALID:
            return invalid_image(image, detail)
        case Reason.NOT_A_COMPONENT:
            do = "push a WebAssembly component with `wash` or as an OCI artifact of type application/wasm"
            return _cause("image", f"{image} is not a WebAssembly component{detail}", do, failure.reason)
        case Reason.INTERFACE_MISSING | Reason.PLUGIN_MISSING:
            return _interface(cluster, workload, failure)
        case Reason.HTTP_HOST_MISSING:
            return _no_http_host()
        case Reason.HTTP_HOST_INVALID:
            return _invalid_http_host(failure.detail)
        case Reason.PULL_FAILED | Reason.START_FAILED:
            about = "image" if failure.reason is Reason.PULL_FAILED else "start"
            do = f"correct what the message names; {_log_of(cluster, workload)} has more"
            return _cause(about, f"host {host} could not start it{detail}", do, failure.reason)
        case _:
            return _registry(cluster, workload, failure, part)


def _registry(cluster: Cluster, workload: WorkloadView, failure: StartFailure, part: PartView | None) -> Line:
    """Return the step for a registry that a host could not pull from; ``part``: with the image, None if not known."""
    image, host = failure.image or (part.image if part else ""), host_named(cluster, workload.host_id)
    registry, detail = registry_asked(image) if image else "of the image", quoted(failure.detail)
    match failure.reason:
        case Reason.REGISTRY_TIMEOUT:
            do = "check the registry: meanwhile the host sends no heartbeat, and the operator starts no other Workload"
            return _cause("image", f"registry {registry} did not answer host {host}{detail}", do, failure.reason)
        case Reason.REGISTRY_WITHOUT_TLS:
            text = f"registry {registry} speaks plain http, and host {host} requires https{detail}"
            return _cause("image", text, _ENCRYPT, failure.reason)
        case Reason.REGISTRY_NOT_TRUSTED:
            do = "add the CA of the registry to the trusted certificates of the host"
            return _cause("image", f"host {host} does not trust registry {registry}{detail}", do, failure.reason)
        case Reason.REGISTRY_DENIED:
            key = image_key(workload.meta.namespace, part) if part is not None else None
            return _denied(image, detail, part, cluster.snapshot.images.get(key) if key is not None else None)
        case _:
            do = "check the name of the registry, DNS and network policies; a cached image needs the registry, too"
            return _cause("image", f"host {host} cannot reach registry {registry}{detail}", do, failure.reason)


def invalid_image(image: str, detail: str) -> Line:
    """Return the step for an image that is not a reference."""
    return _cause("image", f"{image} is not an image reference{detail}", _TO_FIX, Reason.IMAGE_INVALID)


def image_trouble(image: str, answer: ImageAnswer, part: PartView | None) -> Line | None:
    """Return the step for an answer of a registry that is a problem, None for any other one."""
    detail = quoted(answer.detail)
    match answer.state:
        case ImageState.NOT_FOUND:
            return _cause("image", f"image {image} does not exist{detail}", _TO_FIX, Reason.IMAGE_NOT_FOUND)
        case ImageState.DENIED:
            return _denied(image, detail, part, answer)
        case ImageState.INVALID:
            return invalid_image(image, detail)
        case _:
            return None


def registry_lines(cluster: Cluster, namespace: str, parts: Iterable[PartView]) -> Iterator[Line]:
    """Yield the answers of registries about images that run: a problem appears at the next start only."""
    for part in parts:
        answer = cluster.snapshot.images.get(image_key(namespace, part))
        if answer is None:
            continue
        trouble = image_trouble(part.image, answer, part)
        if trouble is not None:
            yield Line("registry", f"{trouble.text}; so the next start on another host fails")
        elif answer.state is ImageState.FOUND:
            detail = f"; {answer.detail}" if answer.detail else ""
            yield Line("registry", f"{part.image} exists{detail}")
        else:
            text = f"{part.image} not read{quoted(answer.detail or 'no answer')}"
            yield source_line("registry", text, untrusted_resolution(answer))


def untrusted_resolution(answer: ImageAnswer) -> str:
    """Return what to do if the certificate of a registry is not trusted by this command, "" for any other answer."""
    if answer.state is not ImageState.NOT_TRUSTED:
        return ""
    return "have this command trust the CA of its certificate, and name the registry as the certificate does"


def _image(cluster: Cluster, workload: WorkloadView) -> Line:
    """Return the step for a Workload that its host does not know: an image could not be pulled or decoded."""
    namespace, parts = workload.meta.namespace, workload.spec.parts
    answers = [(part, cluster.snapshot.images.get(image_key(namespace, part))) for part in parts]
    for part, answer in answers:
        if answer is not None and (line := image_trouble(part.image, answer, part)) is not None:
            return line
    for part, answer in answers:
        if answer is not None and answer.types is not None and _refused_as_plain(cluster, workload, part, answer):
            return _without_tls(cluster, workload, part)
    host = host_named(cluster, workload.host_id)
    images = listed([part.image for part in parts if part.image], _SHOWN) or "none is named"
    text = f"host {host} could not pull or decode {images}"
    found = [answer for _, answer in answers if answer is not None and answer.state is ImageState.FOUND]
    if parts and len(found) == len(parts):
        text += "; the registry has it for this account, so the host cannot reach the registry, log in, or decode it"
    failed_reads = [answer.detail for _, answer in answers if answer is not None and answer.state in _NOT_ASKED]
    if failed_reads:
        text += f"; the registry could not be asked from here{quoted(listed(failed_reads, _SHOWN))}"
    if any(part.pull_policy == _NEVER for part in parts):
        text += f"; imagePullPolicy is {_NEVER}, so the host needs a cached copy"
    without = next((part for part, answer in answers if answer is not None and answer.without_login), None)
    if without is not None:
        text, do = _without_login(text, without)
        return _cause("image", f"{text}, so the host sends an empty one", do, Reason.PULL_FAILED)
    return _cause("image", text, how_to_learn(cluster, workload), Reason.PULL_FAILED)


def _refused_as_plain(cluster: Cluster, workload: WorkloadView, part: PartView, answer: ImageAnswer) -> bool:
    """Return whether the host of a Workload refuses a registry without TLS, as hosts do by default.

    A host that runs another Workload from this registry was started with ``--allow-insecure-registries``.
    """
    if not answer.plain or not workload.host_id:
        return False
    running = (item for item in cluster.workloads if item.host_id == workload.host_id and item.condition("Sync").true)
    return not any(registry_asked(it.image) == registry_asked(part.image) for item in running for it in item.spec.parts)


def _without_tls(cluster: Cluster, workload: WorkloadView, part: PartView) -> Line:
    host, registry = host_named(cluster, workload.host_id), registry_asked(part.image)
    text = f"registry {registry} has {part.image} and speaks plain http; host {host} requires https by default"
    return _cause("image", text, _ENCRYPT, Reason.REGISTRY_WITHOUT_TLS)


def how_to_learn(cluster: Cluster, workload: WorkloadView) -> str:
    """Return where the cause of a failed start is, without the sources that were used already."""
    snapshot, ways = cluster.snapshot, []
    namespace = workload.meta.namespace
    if not any(image_key(namespace, part) in snapshot.images for part in workload.spec.parts):
        ways.append("by `--v2-registry`")
    if snapshot.messages is None or snapshot.messages.replies is None:
        ways.append("by `--v2-nats URL --v2-replies`")
    if cluster.host(workload.host_id) is not None:
        ways.append(f"in {_log_of(cluster, workload)}")
    return f"find the cause {', or '.join(ways)}" if ways else ""


def _log_of(cluster: Cluster, workload: WorkloadView) -> str:
    """Return where the log of the host of a Workload is."""
    host = cluster.host(workload.host_id)
    pod = cluster.pod_of(host) if host is not None else None
    if pod is not None:
        return f"`kubectl logs -n {pod.meta.namespace} {pod.meta.name}` at {workload.id}"
    if host is None:
        return f"the log of host {workload.host_id}"
    return f"the log of host {host.meta.name}{f' ({host.address})' if host.address else ''}"


def _links(cluster: Cluster, workload: WorkloadView) -> Iterator[Line]:
    """Yield the possible causes of a failed link, the first one with evidence, or a last one without evidence."""
    beat = cluster.description(workload.host_id)
    if beat is not None:
        missing = without_plugin(workload.spec.wanted, beat.imports | beat.exports)
        if missing:
            yield _no_plugin(cluster, workload, tuple(missing))
    undeclared = undeclared_imports(cluster, workload)
    if undeclared:
        yield _undeclared(cluster, workload, tuple(undeclared))
    if any(entry.receives_http and not entry.host and not entry.layered for entry in workload.spec.interfaces):
        yield _no_http_host()
    for entry in workload.spec.interfaces:
        if entry.receives_http and entry.host and not entry.layered and not is_host_name(entry.host):
            yield _invalid_http_host(entry.host)
    host = host_named(cluster, workload.host_id)
    text = f"host {host} could not link or bind it"
    yield _cause("link", text, how_to_learn(cluster, workload), Reason.START_FAILED)


def undeclared_imports(cluster: Cluster, workload: WorkloadView) -> list[Interface]:
    """Return imports of its components, as far as read, that neither the host nor another component can provide."""
    namespace, spec = workload.meta.namespace, workload.spec
    answers = (cluster.snapshot.images.get(image_key(namespace, part)) for part in spec.parts)
    types = [answer.types for answer in answers if answer is not None and answer.types is not None]
    there = spec.wanted | frozenset(item for found in types for item in found.exports)
    return without_plugin((item for found in types for item in found.imports), there)


def _interface(cluster: Cluster, workload: WorkloadView, failure: StartFailure) -> Line:
    if not failure.interfaces:
        host = host_named(cluster, workload.host_id)
        return _cause("link", f"host {host} could not link it{quoted(failure.detail)}", "", failure.reason)
    declared = all(any(item.fits(each) for each in workload.spec.wanted) for item in failure.interfaces)
    if failure.reason is Reason.PLUGIN_MISSING or declared:
        return _no_plugin(cluster, workload, failure.interfaces)
    return _undeclared(cluster, workload, failure.interfaces)


def _no_plugin(cluster: Cluster, workload: WorkloadView, missing: tuple[Interface, ...]) -> Line:
    beat = cluster.description(workload.host_id)
    has = ""
    if beat is not None:
        offered = sorted({str(item) for item in beat.imports | beat.exports})
        alike = [
            item for item in offered if any(item.startswith(f"{each.namespace}:{each.package}/") for each in missing)
        ]
        has = f" (it has: {listed(alike or offered, _SHOWN) or 'none'})"
    host = host_named(cluster, workload.host_id)
    text = f"host {host} has no plugin for {listed([str(item) for item in missing], _SHOWN)}{has}"
    do = "run the workload on a host with the plugin (hostSelector)"
    if not _imported(cluster, workload, missing):
        do += ", or remove it from hostInterfaces if no component imports it"
    return _cause("link", text, do, Reason.PLUGIN_MISSING)


def _imported(cluster: Cluster, workload: WorkloadView, interfaces: Iterable[Interface]) -> bool:
    """Return whether a component imports one of the interfaces, as far as components were read."""
    namespace = workload.meta.namespace
    answers = (cluster.snapshot.images.get(image_key(namespace, part)) for part in workload.spec.parts)
    found = {item for answer in answers if answer is not None and answer.types for item in answer.types.imports}
    return any(item.fits(each) for item in found for each in interfaces)


def _undeclared(cluster: Cluster, workload: WorkloadView, missing: tuple[Interface, ...]) -> Line:
    names = listed([str(item) for item in missing], _SHOWN)
    text = f"a component imports {names}, which is not in hostInterfaces and which no other component exports"
    beat = cluster.description(workload.host_id)
    if beat is not None:
        offered = beat.imports | beat.exports
        if absent := without_plugin(missing, offered):
            there = listed([str(item) for item in absent], _SHOWN)
            text += f"; host {host_named(cluster, workload.host_id)} has no plugin for {there}"
    do = "add it to hostInterfaces, or add a component that exports it"
    return _cause("link", text, do, Reason.INTERFACE_MISSING)


def _no_http_host() -> Line:
    text = "wasi:http in hostInterfaces has no host name, which the host requires"
    return _cause("link", text, "set config.host of this entry", Reason.HTTP_HOST_MISSING)


def _invalid_http_host(detail: str) -> Line:
    text = f"config.host of wasi:http in hostInterfaces is not the name of a host{quoted(detail)}"
    do = "set it to one name such as shop.example.com, without a wildcard, port or path"
    return _cause("link", text, do, Reason.HTTP_HOST_INVALID)


def _part(workload: WorkloadView, failure: StartFailure) -> PartView | None:
    parts = workload.spec.parts
    named = next((part for part in parts if failure.component and part.name == failure.component), None)
    return named or next((part for part in parts if failure.image and part.image == failure.image), None)


def _login(part: PartView | None) -> str:
    if part is None or not part.secret:
        return "set imagePullSecret of the component to a Secret with a login, and check the name of the image"
    return f"check the login in its imagePullSecret, Secret {part.secret}, and the name of the image"


def _denied(image: str, detail: str, part: PartView | None, answer: ImageAnswer | None) -> Line:
    """Return the step for an image that its registry denies; ``answer``: of the registry, if it was asked, too."""
    registry = registry_asked(image) if image else "of the image"
    text, do = f"registry {registry} denies {image or 'it'}{detail}", _login(part)
    if part is not None and answer is not None and answer.without_login:
        text, do = _without_login(text, part)
    return _cause("image", text, do, Reason.REGISTRY_DENIED)


def _without_login(text: str, part: PartView) -> tuple[str, str]:
    """Return text and resolution for a pull Secret that has logins for other registries only."""
    registry = registry_asked(part.image)
    text = f"{text}; its imagePullSecret, Secret {part.secret}, has no login for {registry}"
    return text, f"add a login for {registry} to Secret {part.secret}"


def _cause(about: str, text: str, do: str, reason: Reason) -> Line:
    return Line(about, text, False, do, Rank.CAUSE, reason)
