# The container of the installer Job: Python, two packages, this program. The base is an argument, so that it can come
# from any registry; it needs Python 3.11 or later and nsenter (util-linux).
#   docker build -f deploy/images/installer.Dockerfile -t trellis-installer .
# Where a build reaches no package index, give it the packages; then nothing is fetched and the base needs no pip:
#   uv pip install --target installer-packages --require-hashes -r requirements-installer.lock
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements-installer.lock installer-packages*/ /packages/
# Not a virtual environment: packages without their tools are all that is copied on.
RUN mv /packages/requirements-installer.lock . \
 && { [ -d /packages/tomlkit ] || python3 -m pip install --no-cache-dir --no-compile --require-hashes --target /packages \
      -r requirements-installer.lock; }
COPY services/node_installer /packages/node_installer
COPY shared/trellis/__init__.py shared/trellis/installing.py shared/trellis/install_results.py \
     shared/trellis/redaction.py /packages/trellis/
# The version, as an installed distribution has it: spans carry it.
COPY pyproject.toml .
RUN python3 -c 'import pathlib, tomllib; \
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]; \
info = pathlib.Path("/packages", "{}-{}.dist-info".format(project["name"].replace("-", "_"), project["version"])); \
info.mkdir(); \
(info / "METADATA").write_text("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".format(**project))' \
 && PYTHONPATH=/packages python3 -c 'from importlib.metadata import version; print(version("trellis-wasm"))'
# Compiled here, because the container's file system may be read-only, and each run would compile anew.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /packages \
 && PYTHONPATH=/packages python3 -m node_installer --help > /dev/null \
 && PYTHONPATH=/packages python3 -m node_installer.canary > /canary.wasm

FROM ${BASE}
COPY --from=build /packages /opt/trellis-installer
# What a canary pod runs on a node that has this image already: a Wasm runtime finds it by its path.
COPY --from=build /canary.wasm /canary.wasm
ENV PYTHONPATH=/opt/trellis-installer PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["python3", "-m", "node_installer"]
CMD ["install"]
