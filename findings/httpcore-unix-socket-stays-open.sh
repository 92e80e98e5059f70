#!/usr/bin/env bash
# A refused connection to a Unix socket leaves a socket open in httpx's blocking transport.
#
# Version: httpx 0.28.1 with httpcore 1.0.9. Seen on CPython 3.11.
# Behaviour: where nobody listens at the path, the request fails with ConnectError, as it should. The
# socket that was made for it is not closed: it stays until the garbage collector finds it, and
# Python warns of it. Over TCP, a refused connection leaves none. A program that waits for a server
# on a Unix socket by trying again, with warnings as errors, fails by its own attempts.
# Output seen:
#   unix: ConnectError, left open: 1
#   tcp: ConnectError, left open: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check httpx==0.28.1 httpcore==1.0.9
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import gc
import socket
import sys
import warnings

import httpx


def count_left_open(transport: httpx.HTTPTransport, url: str) -> tuple[str, int]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        with httpx.Client(transport=transport) as client:
            try:
                client.get(url)
                outcome = "answered"
            except httpx.ConnectError:
                outcome = "ConnectError"
        gc.collect()
    return outcome, sum("unclosed <socket" in str(one.message) for one in seen)


with socket.socket() as probe:  # a port where nobody listens afterwards
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
found = {
    "unix": count_left_open(httpx.HTTPTransport(uds=f"{sys.argv[1]}/nobody"), "http://local/"),
    "tcp": count_left_open(httpx.HTTPTransport(), f"http://127.0.0.1:{port}/"),
}
for name, (outcome, left) in found.items():
    print(f"{name}: {outcome}, left open: {left}")
assert found == {"unix": ("ConnectError", 1), "tcp": ("ConnectError", 0)}, found
PYTHON
