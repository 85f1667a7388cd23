# The container of the installer Job: Python, two packages, this program. The base is an argument, so that it can come
# from any registry; it needs Python 3.11 or later and nsenter (util-linux).
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements-installer.lock ./
# Not a virtual environment: packages without their tools are all that is copied on.
RUN python3 -m pip install --no-cache-dir --no-compile --require-hashes --target /packages -r requirements-installer.lock
COPY services/node_installer /packages/node_installer
COPY shared/trellis/__init__.py shared/trellis/installing.py shared/trellis/install_results.py \
     shared/trellis/redaction.py /packages/trellis/
RUN python3 -m compileall -q /packages && PYTHONPATH=/packages python3 -m node_installer --help > /dev/null

FROM ${BASE}
COPY --from=build /packages /opt/trellis-installer
ENV PYTHONPATH=/opt/trellis-installer PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["python3", "-m", "node_installer"]
CMD ["install"]
