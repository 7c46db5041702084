# rmqinspect and a Java runtime (for `export --engine spark`), for hosts where nothing may be installed.
#
#   docker build -t rmqinspect .
#   docker run --rm --network none -v /data/store:/store:ro rmqinspect verify /store
#
# The mount is read-only (:ro), the user is not root, and no network is needed. docs/docker.md has more.

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY docs/rmqinspect.1 ./docs/
COPY install ./install
COPY schemas ./schemas
COPY rmqinspect ./rmqinspect
# This image has no C compiler: the package index has one, which compiles the loops, for any processor of this kind.
RUN python -m venv /opt/rmqinspect \
    && /opt/rmqinspect/bin/pip install --no-cache-dir ".[rocksdb]" \
    && /opt/rmqinspect/bin/python -c "import rmqinspect.loops.records as loops; assert loops.COMPILED"

FROM python:3.13-slim-bookworm
# The version is that of the base image's Debian release: a pinned one would vanish with its next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home rmqinspect
COPY --from=build /opt/rmqinspect /opt/rmqinspect
ENV PATH="/opt/rmqinspect/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /home/rmqinspect
ENTRYPOINT ["rmqinspect"]
CMD ["--help"]
