# docker build --target TARGET -t robocache .      docs/install.md says how to run them
#   cli      (default) the command line alone: one static binary with every reader and decoder, no shell, no libraries
#   ffmpeg   beside it the ffmpeg program, which encodes video
#   python   the Python package and the command line, with NumPy
#   cuda     the same on CUDA's base image: the kernels and video engines of the node's GPU
#   tools    what builds all of them; the devcontainer
FROM golang:1.26-bookworm AS tools
COPY scripts/deps.sh /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv python3-pip && bash /tmp/deps.sh && rm -rf /var/lib/apt/lists/* /tmp/deps.sh \
 && useradd --create-home --uid 1000 dev

FROM tools AS source
WORKDIR /src
COPY Makefile ./
COPY scripts scripts
RUN make native
COPY . .

FROM source AS static
RUN make static

FROM source AS wheel
RUN python3 -m pip wheel --no-cache-dir --no-deps -w /wheels ./python

FROM python:3.13-slim AS python
RUN --mount=from=wheel,source=/wheels,target=/wheels pip install --no-cache-dir --no-compile /wheels/*.whl
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["robocache"]

FROM nvidia/cuda:12.8.1-base-ubuntu24.04 AS cuda
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv ca-certificates && rm -rf /var/lib/apt/lists/* && python3 -m venv /opt/robocache
RUN --mount=from=wheel,source=/wheels,target=/wheels /opt/robocache/bin/pip install --no-cache-dir --no-compile /wheels/*.whl
ENV PATH=/opt/robocache/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp NVIDIA_DRIVER_CAPABILITIES=compute,video,utility
USER 65532:65532
ENTRYPOINT ["robocache"]

FROM debian:bookworm-slim AS ffmpeg
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=static /src/bin/robocache-static /usr/local/bin/robocache
USER 65532:65532
ENTRYPOINT ["robocache"]

FROM scratch AS cli
COPY --from=static /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=static /src/bin/robocache-static /usr/local/bin/robocache
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/robocache"]
