# Image of the installer Job: Python, two packages, the installer, and the runtime of the default Shim. The base images are
# arguments, so that they can come from any registry: BASE needs Python 3.11 or later and nsenter (util-linux); RUST, which
# builds the runtime, is Debian with Rust 1.88 or later. Docker builds it with BuildKit, its default from 23.0 on; before
# that, set DOCKER_BUILDKIT=1.
#   docker build -f deploy/images/installer.Dockerfile -t trellis-installer .
#   docker run --rm --entrypoint sha256sum trellis-installer /opt/trellis-runtime/containerd-shim-wasi-v1   # for the chart
# Private package index: --secret id=pip.conf,src=pip.conf, which is not stored in the image. Without access to an index,
# put the packages and the runtime into the build context; the build then downloads nothing and needs neither pip nor Rust,
# as with `trellis dev image`.
ARG BASE=python:3.11-slim
ARG RUST=rust:1.95-slim-bookworm
FROM ${RUST} AS runtime
WORKDIR /src
# The second is a directory that is optional: the finished runtime.
COPY devtools/trellis_dev/localcluster/runtime installer-runtime*/ /src/
RUN if [ -x containerd-shim-wasi-v1 ]; then mkdir /runtime && cp -r . /runtime; else \
      apt-get update && apt-get install --yes --no-install-recommends \
        gcc libc6-dev libprotobuf-dev libseccomp-dev make pkg-config protobuf-compiler \
   && sh build.sh /runtime; fi

FROM ${BASE} AS build
WORKDIR /src
# Each line copies a file, and a directory that is optional.
COPY requirements-images.lock tool-packages*/ /tools/
COPY requirements-installer.lock installer-packages*/ /packages/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    mv /tools/requirements-images.lock /packages/requirements-installer.lock . \
 && { [ -d /tools/cyclonedx ] || python3 -m pip install --no-cache-dir --only-binary :all: --require-hashes \
      --target /tools -r requirements-images.lock; } \
 && { [ -d /packages/tomlkit ] || python3 -m pip install --no-cache-dir --no-compile --only-binary :all: \
      --target /packages --require-hashes -r requirements-installer.lock; }
COPY pyproject.toml LICENSE deploy/images/assemble.py deploy/images/inventory.py ./
COPY services/node_installer services/node_installer
COPY shared/trellis/__init__.py shared/trellis/
COPY shared/trellis/installer_api shared/trellis/installer_api
COPY shared/trellis/oci shared/trellis/oci
COPY --from=runtime /runtime /runtime
RUN python3 assemble.py installer \
 && python3 inventory.py /opt/trellis-installer requirements-installer.lock /inventory --runtime /runtime \
 && mkdir /opt/trellis-runtime && cp /runtime/containerd-shim-wasi-v1 /opt/trellis-runtime \
 && /opt/trellis-installer/bin/trellis-node-installer --help > /dev/null \
 && /opt/trellis-installer/bin/python3 -m node_installer.domain.canary > /canary.wasm

FROM ${BASE}
# Remove the package installers of Python base images; other base images are unchanged.
RUN rm -rf /usr/local/bin/pip* /usr/local/bin/wheel /usr/local/lib/python3*/ensurepip \
    /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/site-packages/setuptools* \
    /usr/local/lib/python3*/site-packages/wheel* /usr/local/lib/python3*/site-packages/pkg_resources \
    /usr/local/lib/python3*/site-packages/_distutils_hack /usr/local/lib/python3*/site-packages/distutils-precedence.pth
COPY --from=build /opt/trellis-installer /opt/trellis-installer
COPY --from=build /opt/trellis-runtime /opt/trellis-runtime
COPY --from=build /inventory /usr/share/doc/trellis
# Module that canary pods run; nodes with this image have it already, and the Wasm runtime finds it by its path.
COPY --from=build /canary.wasm /canary.wasm
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trellis-node-installer" \
      org.opencontainers.image.description="Installs WebAssembly shims on a Kubernetes node" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# Runs as root: the privileged Job writes to the node's disk and restarts the node's container runtime.
USER 0:0
# PATH is that of the base image, because commands on the node inherit it.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["/opt/trellis-installer/bin/trellis-node-installer"]
CMD ["install"]
