# Image of all services and the `trellis` command: Python, the packages of one lock, and Trellis. The base image is an
# argument, so that it can come from any registry; it needs Python 3.11 or later.
#   docker build -f deploy/images/services.Dockerfile -t trellis .
# Build the console's web page first: `make page`, or without node and Python:
#   docker run --rm -v "$PWD":/src -w /src/services/console/page node:22-slim sh -c 'npm ci --ignore-scripts && node build.mjs'
# Private package index: --secret id=pip.conf,src=pip.conf, which is not stored in the image. Without access to an index,
# put the packages into the build context; the build then downloads nothing and needs no pip, as with `trellis dev image`.
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
# Each line copies a file, and a directory that is optional.
COPY requirements-images.lock tool-packages*/ /tools/
COPY requirements-services.lock services-packages*/ /packages/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    mv /tools/requirements-images.lock /packages/requirements-services.lock . \
 && { [ -d /tools/cyclonedx ] || python3 -m pip install --no-cache-dir --only-binary :all: --require-hashes \
      --target /tools -r requirements-images.lock; } \
 && { [ -d /packages/pydantic ] || python3 -m pip install --no-cache-dir --no-compile --only-binary :all: \
      --target /packages --require-hashes -r requirements-services.lock; }
COPY pyproject.toml LICENSE deploy/images/assemble.py deploy/images/inventory.py ./
COPY services services
COPY shared/trellis shared/trellis
RUN python3 assemble.py services \
 && python3 inventory.py /opt/trellis requirements-services.lock /inventory --console services/console \
 && /opt/trellis/bin/trellis version

FROM ${BASE}
# Remove the package installers of Python base images; other base images are unchanged.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip \
    /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/site-packages/setuptools* \
    /usr/local/lib/python3*/site-packages/wheel* /usr/local/lib/python3*/site-packages/pkg_resources \
    /usr/local/lib/python3*/site-packages/_distutils_hack /usr/local/lib/python3*/site-packages/distutils-precedence.pth
COPY --from=build /opt/trellis /opt/trellis
COPY --from=build /inventory /usr/share/doc/trellis
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trellis" \
      org.opencontainers.image.description="Event-driven services that make Kubernetes run WebAssembly" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# The user does not exist in the base image and owns no files. Services write only to volumes: /tmp and /var/lib/trellis.
USER 65532:65532
ENV PATH=/opt/trellis/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["trellis"]
CMD ["run"]
