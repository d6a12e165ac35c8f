# A small image that needs one thing from its environment: SSE_PROXY_UPSTREAM, the host's address.
#
#     docker build -t sse-proxy .
#     docker run --rm --read-only --cap-drop ALL -p 8080:8080 -e SSE_PROXY_UPSTREAM=http://host:5232 sse-proxy

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY sse_proxy ./sse_proxy
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /wheels .
# The environment is copied to the same path, under the same interpreter, and has no pip of its own. Its bytecode is made
# here: the root file system may be read-only, and a check by mtime would not survive every way of copying layers.
RUN python -m venv --without-pip /opt/sse-proxy \
    && pip --python /opt/sse-proxy/bin/python install --no-cache-dir --disable-pip-version-check --no-compile \
        /wheels/*.whl \
    && /opt/sse-proxy/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/sse-proxy/lib

FROM python:3.13-slim
LABEL org.opencontainers.image.title="sse-proxy" \
      org.opencontainers.image.description="Makes a legacy chat host's server-sent-event stream right"
COPY --from=build /opt/sse-proxy /opt/sse-proxy
COPY config/gaapi.yaml /etc/sse-proxy/config.yaml
# The loopback defaults of the configuration would be out of reach from outside the container.
ENV PATH=/opt/sse-proxy/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SSE_PROXY_CONFIG=/etc/sse-proxy/config.yaml \
    SSE_PROXY_LISTEN=0.0.0.0:8080 \
    SSE_PROXY_ADMIN=0.0.0.0:9901
# A number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080 9901
# TERM drains: the running streams get `drain_timeout` (30 s) to end, so give the container longer (docker stop -t 40).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 CMD ["sse-proxy", "healthcheck"]
ENTRYPOINT ["sse-proxy"]
CMD ["serve", "-c", "/etc/sse-proxy/config.yaml"]
