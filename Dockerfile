# flexmatch in a container: docker build -t flexmatch . && docker run --rm flexmatch demo
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /build
COPY requirements.lock ./
# every file has a hash of the lock; of these files, only what flexmatch needs is installed
RUN pip wheel --no-cache-dir --require-hashes --no-deps --wheel-dir wheels -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY flexmatch flexmatch
COPY rewrite_compiler rewrite_compiler
COPY rules rules
COPY ila_models ila_models
COPY targets targets
COPY apps apps
RUN pip install --no-cache-dir --no-index --find-links wheels --upgrade setuptools \
    && pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
    && python -m venv /opt/flexmatch \
    && /opt/flexmatch/bin/pip install --no-cache-dir --no-index --find-links wheels flexmatch

FROM python:3.11.13-slim-bookworm
COPY --from=build /opt/flexmatch /opt/flexmatch
ENV PATH=/opt/flexmatch/bin:$PATH FLEXMATCH_CACHE=/tmp/flexmatch
RUN useradd --uid 1000 --create-home flexmatch
USER flexmatch
WORKDIR /data
ENTRYPOINT ["flexmatch"]
CMD ["--help"]
