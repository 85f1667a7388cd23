# Image of all services and the `trellis` command: Python, the packages of one lock, and Trellis with the console's page.
# The base images are arguments, so that they can come from any registry: BASE needs Python 3.11 or later, NODE node 20 or
# later. Docker builds it with BuildKit, its default from 23.0 on; before that, set DOCKER_BUILDKIT=1.
#   docker build -f deploy/images/services.Dockerfile -t trellis .
# Private package index: --secret id=pip.conf,src=pip.conf and --secret id=npmrc,src=.npmrc, which are not stored in the
# image. Without access to an index, put the packages and the page (services/console/static) into the build context; the
# build then downloads nothing and needs no pip, no node and no npm, as with `trellis dev image`.
ARG BASE=python:3.11-slim
ARG NODE=node:22-slim
FROM ${NODE} AS page
WORKDIR /src
# Each line copies a file, and a directory that is optional. The first file is removed again.
COPY LICENSE services/console/static*/ static/
COPY services/console/page/package.json services/console/page/package-lock.json services/console/page/.npmrc page/
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc \
    rm static/LICENSE \
 && { [ -f static/index.html ] || { cd page && npm ci --ignore-scripts; }; }
COPY services/console/page page
RUN [ -f static/index.html ] || node page/build.mjs static

FROM ${BASE} AS build
WORKDIR /src
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
COPY --from=page /src/static services/console/static
RUN python3 assemble.py services \
 && python3 inventory.py /opt/trellis requirements-services.lock /inventory --console services/console \
 && /opt/trellis/bin/trellis version

FROM ${BASE}
# Remove the package installers of Python base images; other base images are unchanged.
RUN rm -rf /usr/local/bin/pip* /usr/local/bin/wheel /usr/local/lib/python3*/ensurepip \
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
