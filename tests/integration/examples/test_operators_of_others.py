"""The examples for Argo CD, Flux, KEDA and External Secrets Operator are what these define, by their own definitions.

The operators do not run here (``tests/e2e/operators`` runs them): no controller acts on the objects. A field that the
kinds do not have is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.examples.applied_examples import Kubectl, free
from support.examples.folders import EXAMPLES, Manifest, manifests
from support.operators.operators_of_others import FILES, defined
from support.secrets.secrets_world import define_grants
from support.wadm.application_world import define_applications
from trellis.kube.resources import NAMESPACES
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

STRICTLY = ("apply", "--server-side", "--dry-run=server", "--validate=strict")


@pytest.fixture(params=sorted(FILES))
def example(request: pytest.FixtureRequest, kubectl: Kubectl, cluster_api: Api) -> Iterator[str]:
    """An example whose kinds are served, with the namespaces that it names."""
    name = str(request.param)
    namespaces = sorted({manifest["metadata"]["namespace"] for manifest in manifests(name)})
    define_applications(cluster_api)
    define_grants(cluster_api)
    with free(cluster_api, *namespaces), defined(kubectl, name):
        for namespace in namespaces:
            cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": namespace}})
        yield name


def test_the_definitions_take_the_example_and_no_field_that_they_do_not_have(
    example: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl(*STRICTLY, "-k", str(EXAMPLES / example))
    for number, found in enumerate(manifests(example)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(misspelt(found)))
        assert ".spec." in kubectl.refused(*STRICTLY, "-f", str(path))


def misspelt(found: Manifest) -> Manifest:
    """Return an object whose last field has a letter too many."""
    *others, last = found["spec"]
    return found | {"spec": {item: found["spec"][item] for item in others} | {f"{last}x": found["spec"][last]}}
