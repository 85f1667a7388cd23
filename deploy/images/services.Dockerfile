# All services; `trellis run` chooses. The base is an argument, so that it can come from any registry.
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements-services.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/trellis \
 && /opt/trellis/bin/pip install --no-cache-dir --require-hashes -r requirements-services.lock
COPY services services
COPY shared shared
RUN /opt/trellis/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
COPY --from=build /opt/trellis /opt/trellis
USER 65532:65532
ENV PATH=/opt/trellis/bin:$PATH PYTHONUNBUFFERED=1
ENTRYPOINT ["trellis"]
CMD ["run"]
