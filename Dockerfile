# crnr in a container. docs/how-to/docker.md says how it is used.
FROM python:3.13-slim AS build
# The extras of pip install 'crnr-cli[...]' that the image has.
ARG EXTRAS=baselines,onnx,parquet,report
WORKDIR /source
COPY . .
RUN python -m venv /opt/crnr && /opt/crnr/bin/pip install --no-cache-dir ".[$EXTRAS]"

FROM python:3.13-slim
COPY --from=build /opt/crnr /opt/crnr
# Nothing but /data and /tmp is written to, so that the root file system may be read-only.
ENV PATH=/opt/crnr/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    CRNR_MODELS=/data/models
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["crnr"]
CMD ["--help"]
