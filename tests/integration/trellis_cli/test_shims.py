"""`trellis shims` on a real API server: what is applied, added, listed, and stored by a dry run."""

from __future__ import annotations

import http
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.suite.typed import Done, bare_environment, typed
from trellis import names
from trellis.kube.resources import SHIMS
from trellis_cli.common.gather import connected
from trellis_cli.common.settings import client_settings
from trellis_cli.shims.command import read_catalogue
from trellis_cli.shims.model import Release, find_release, make_fetch_strategy, make_shim
from trellis_cli.shims.write import Outcome, write_release
from trellis_dev.definitions import define_kinds
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.progress import Quiet

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
OLD, NEW = (find_release(read_catalogue(), wanted) for wanted in ("spin@0.24.0", "spin@0.25.1"))


class Place:
    """One Shim of a test, which does not exist at its beginning."""

    def __init__(self, info: ClusterInfo, api: Api, folder: Path) -> None:
        self.info, self.api, self.name = info, api, f"shim-{secrets.token_hex(4)}"
        self._file = folder / "shim.yaml"
        self._environment = bare_environment(TRELLIS_KUBECONFIG=str(info.kubeconfig))

    def shim(self, release: Release = OLD) -> Manifest:
        return make_shim(replace(release, handler=self.name), self.name, {"no": "node"}, "10%")

    def stored(self) -> Manifest | None:
        status, found = self.api.call("GET", SHIMS.path(None, self.name))
        return found if status == http.HTTPStatus.OK else None

    def create(self, manifest: Manifest) -> None:
        assert self.api.call("POST", SHIMS.path(), manifest)[0] == http.HTTPStatus.CREATED

    def apply(self, manifest: Manifest) -> Done:
        self._file.write_text(yaml.safe_dump(manifest))
        return typed(self._environment, "shims", "apply", str(self._file))

    def listed(self) -> Manifest:
        done = typed(self._environment, "shims", "list", "-o", "json")
        assert done.returncode == 0, done.stderr
        [row] = [shim for shim in json.loads(done.stdout)["shims"] if shim["shim"] == self.name]
        return dict(row)

    async def write(self, manifest: Manifest, *, dry_run: bool = False) -> Outcome:
        async with connected(client_settings(kubeconfig=Path(self.info.kubeconfig))) as kube:
            return (await write_release(kube, manifest, dry_run=dry_run)).outcome

    def clear(self) -> None:
        self.api.call("DELETE", SHIMS.path(None, self.name))


@pytest.fixture
def place(cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[Place]:
    define_kinds(cluster, Quiet())
    found = Place(cluster, cluster_api, tmp_path)
    yield found
    found.clear()


def test_the_default_shim_is_applied_and_follows_the_chart(place: Place) -> None:
    object_name = f"shim.runtime.spinkube.dev/{place.name}"
    assert place.apply(place.shim(OLD)).stdout.split() == [object_name, Outcome.CREATED]
    assert place.apply(place.shim(OLD)).stdout.split() == [object_name, Outcome.UNCHANGED]
    patch = {"spec": {"paused": True}}
    assert place.api.call("PATCH", SHIMS.path(None, place.name), patch)[0] == http.HTTPStatus.OK
    assert place.apply(place.shim(NEW)).stdout.split() == [object_name, Outcome.CONFIGURED]
    now = place.stored()
    assert now is not None
    assert now["spec"]["fetchStrategy"] == make_fetch_strategy(NEW)
    assert now["spec"]["paused"] is True, "what a user set and the chart does not"
    assert names.FIELD_MANAGER_CHART in {managed_field["manager"] for managed_field in now["metadata"]["managedFields"]}


def test_a_shim_of_a_user_is_not_taken_for_the_default(place: Place) -> None:
    place.create(place.shim(OLD))
    done = place.apply(place.shim(NEW))
    assert (done.returncode, done.stdout) == (1, "")
    assert place.name in done.stderr
    now = place.stored()
    assert now is not None
    assert now["spec"]["fetchStrategy"] == make_fetch_strategy(OLD)


async def test_a_dry_run_of_the_server_stores_nothing_and_finds_what_is_invalid(place: Place) -> None:
    assert await place.write(place.shim(), dry_run=True) is Outcome.CREATED
    assert place.stored() is None
    assert await place.write(place.shim()) is Outcome.CREATED
    assert await place.write(place.shim(NEW), dry_run=True) is Outcome.CONFIGURED
    now = place.stored()
    assert now is not None
    assert now["spec"]["fetchStrategy"] == make_fetch_strategy(OLD)
    assert await place.write(place.shim(NEW)) is Outcome.CONFIGURED
    assert await place.write(place.shim(NEW)) is Outcome.UNCHANGED


async def test_the_list_has_the_version_of_a_shim_and_a_newer_one(place: Place) -> None:
    assert await place.write(place.shim(OLD)) is Outcome.CREATED
    row = {"shim": place.name, "runtime": "spin", "version": OLD.version, "newest": NEW.version, "outdated": True}
    assert place.listed() == row
    await place.write(place.shim(NEW))
    assert place.listed() == row | {"version": NEW.version, "outdated": False}
