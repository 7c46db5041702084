# rmqinspect and a Java runtime (for `export --engine spark`), for hosts where nothing may be installed.
#
#   docker build -t rmqinspect .
#   docker run --rm --network none -v /data/store:/store:ro rmqinspect verify /store
#
# The mount is read-only (:ro), the user is not root, and no network is needed. docs/docker.md has more.

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml MANIFEST.in README.md LICENSE ./
COPY docs/rmqinspect.1 ./docs/
COPY schemas ./schemas
COPY rmqinspect ./rmqinspect
# The loops are compiled now, for any processor of this kind, into a folder that every user may read.
ENV NUMBA_CACHE_DIR=/opt/rmqinspect/loops \
    NUMBA_CPU_NAME=generic
RUN python -m venv /opt/rmqinspect \
    && /opt/rmqinspect/bin/pip install --no-cache-dir ".[rocksdb]" \
    && /opt/rmqinspect/bin/python -m rmqinspect.codec.compile_all \
    && chmod -R a+rX,go-w /opt/rmqinspect/loops

FROM python:3.13-slim-bookworm
# The version is that of the base image's Debian release: a pinned one would vanish with its next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home rmqinspect
COPY --from=build /opt/rmqinspect /opt/rmqinspect
ENV PATH="/opt/rmqinspect/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/opt/rmqinspect/loops \
    NUMBA_CPU_NAME=generic
USER 10001
WORKDIR /home/rmqinspect
ENTRYPOINT ["rmqinspect"]
CMD ["--help"]
