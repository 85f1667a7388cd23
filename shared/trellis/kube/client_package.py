"""What is used of the package ``kubernetes``, and of that no more than has to be in memory.

Out: its loaders of credentials and its HTTP session, for ``trellis.kube.access`` alone. ``kubernetes`` imports all of
its synchronous client as soon as anything of it is imported, and with that another HTTP library and OAuth, which are
never called. So this module puts an empty package in its place, through which its parts can still be imported. That
saves 9.3 MiB of 74.5 MiB in each process, 267 of 1,018 modules and a quarter of the processor time of the import
(version 37.0.2, ``python bench/kube_client.py``). The 108 MiB of generated classes are another matter: the package
itself loads these lazily.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

_PACKAGE: Final = "kubernetes"

if _PACKAGE not in sys.modules and (_spec := find_spec(_PACKAGE)) is not None:
    sys.modules[_PACKAGE] = module_from_spec(_spec)

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
from kubernetes.aio.config.kube_config import (  # noqa: E402 - as above
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)

__all__ = [
    "SERVICE_CERT_FILENAME",
    "SERVICE_HOST_ENV_NAME",
    "SERVICE_PORT_ENV_NAME",
    "SERVICE_TOKEN_FILENAME",
    "ConfigException",
    "Configuration",
    "FileOrData",
    "KubeConfigLoader",
    "KubeConfigMerger",
    "RESTClientObject",
    "load_incluster_config",
]
