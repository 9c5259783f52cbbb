# prcut for the CPU, as nobody, without a compiler in the image that runs.
#
#     docker build --tag prcut .
#     docker run --rm --volume "$PWD:/data" --user "$(id -u):$(id -g)" prcut fit embeddings.parquet --clusters 10
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
LABEL org.opencontainers.image.title="prcut" \
      org.opencontainers.image.source="https://github.com/prcut/prcut" \
      org.opencontainers.image.licenses="BSD-3-Clause"
COPY --from=build /wheels /wheels
# a plain torch would bring gigabytes for GPUs; uv knows where the one for the CPU is
RUN pip install --no-cache-dir uv \
    && UV_TORCH_BACKEND=cpu uv pip install --system --no-cache /wheels/*.whl matplotlib \
    && pip uninstall --yes uv \
    && rm -rf /wheels
ENV MPLCONFIGDIR=/tmp PRCUT_CPU_ONLY=1
USER 65534:65534
WORKDIR /data
ENTRYPOINT ["prcut"]
CMD ["--help"]
