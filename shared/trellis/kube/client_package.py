"""What is used of the package ``kubernetes``, and of that no more than has to be in memory.

Out: its loader of a pod's credentials and its HTTP session, for ``trellis.kube.access``; ``trellis.kube.kubeconfig``
imports the loader of kubeconfigs by itself. ``kubernetes`` imports all of its synchronous client as soon as anything of
it is imported, and with that another HTTP library and OAuth; ``kubernetes.aio`` its dynamic client and its watches;
``kubernetes.aio.config`` and ``kubernetes.aio.utils`` YAML. Nothing of that is called in a pod. So this module puts
empty packages in their places, through which their parts can still be imported, and nothing else: attributes such as
``kubernetes.aio.config.load_kube_config`` are missing from then on in the process. That saves 11.5 MiB of 65.7 MiB in
each process, 331 of 934 modules and a sixth of the processor time of the import (version 37.0.2,
``python bench/kube_client.py``). The 108 MiB of generated classes are another matter: the package itself loads these
lazily.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

_EMPTY: Final = ("kubernetes", "kubernetes.aio", "kubernetes.aio.config", "kubernetes.aio.utils")
"""Each after the one that it is a part of."""

# Into a package that was imported before nothing is put: others use it.
for _name in () if _EMPTY[0] in sys.modules else _EMPTY:
    if (_spec := find_spec(_name)) is not None:
        sys.modules[_name] = module_from_spec(_spec)
        _parent, _, _child = _name.rpartition(".")
        if _parent:  # what an import would do
            setattr(sys.modules[_parent], _child, sys.modules[_name])

from kubernetes.aio.client.configuration import Configuration  # noqa: E402 - after the above
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402 - as above
from kubernetes.aio.config.config_exception import ConfigException  # noqa: E402 - as above
from kubernetes.aio.config.incluster_config import (  # noqa: E402 - as above
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_PORT_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    load_incluster_config,
)

__all__ = [
    "SERVICE_CERT_FILENAME",
    "SERVICE_HOST_ENV_NAME",
    "SERVICE_PORT_ENV_NAME",
    "SERVICE_TOKEN_FILENAME",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "load_incluster_config",
]
