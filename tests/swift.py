"""A real OpenStack Swift behind S3's protocol, for tests: four processes on 127.0.0.1.

Not here: installing it (`make .venv-swift/.ready`).

- Swift keeps what it knows of a file in the file's extended attributes: the folder has to be where
  a user may write those.
- A slow machine is no error: Swift's own deadlines are long enough to never pass, and nothing is
  left for services that do not run here.
"""

import os
import pwd
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from relayer.blobs.buckets import BucketStore
from relayer.settings import Settings
from tests.processes import lasting_ports

PROGRAMS = Path(__file__).parent.parent / ".venv-swift" / "bin"
KEY_ID, KEY = "test:tester", "testing-swift-key"
REGION = "us-east-1"
LISTED_MAX = 50  # names in a page, so that a few are several pages
START_S_MAX = 120.0
STORAGE = ("account", "container", "object")
KINDS = (*STORAGE, "proxy")
_PATIENT_S = 120
_DEADLINE_S = 300.0
_UNTIL_WE_END = ("setpriv", "--pdeathsig", "TERM")  # also if somebody kills the tests

_SWIFT = """
[swift-hash]
swift_hash_path_suffix = test
[storage-policy:0]
name = only
default = yes
"""
_DEFAULT = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
log_address = {folder}/no-log
fallocate_reserve = 0
conn_timeout = {patient}
node_timeout = {patient}
container_update_timeout = {patient}
"""
_STORING = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper listing_formats s3api tempauth proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = {region}
max_bucket_listing = {listed}
allow_multipart_uploads = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {key} .admin
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
conn_timeout = {patient}
node_timeout = {patient}
recoverable_node_timeout = {patient}
error_suppression_limit = 1000000
"""
_RINGS = """
import sys
from swift.common.ring import RingBuilder
folder, *named = sys.argv[1:]
for kind, port in zip(named[::2], named[1::2]):
    builder = RingBuilder(4, 1, 0)
    place = {"ip": "127.0.0.1", "port": int(port), "device": "one"}
    builder.add_dev({"region": 1, "zone": 1, "weight": 1, **place})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{kind}.ring.gz")
"""


@dataclass
class Swift:
    """A running store."""

    port: int
    buckets: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, place: str, *, url: str = "") -> dict[str, Any]:
        """What a relayer has to be told to keep its blobs at `<bucket>[/<prefix>]`."""
        return {
            "blob_store": f"s3://{place}",
            "s3_endpoint": url or self.url,
            "s3_access_key_id": KEY_ID,
            "s3_secret_access_key": KEY,
        }

    def bucket(self) -> str:
        """A new, empty one."""
        name = f"blobs-{len(self.buckets)}"
        self.buckets.append(name)
        put = obstore.sign(self.objects(name), "PUT", "", timedelta(minutes=5))
        with urllib.request.urlopen(urllib.request.Request(put, method="PUT")) as answer:
            assert answer.status == 200
        return name

    def objects(self, bucket: str) -> S3Store:
        """A way into a bucket that is not the product's."""
        return S3Store(
            bucket,
            config={
                "aws_endpoint_url_s3": self.url,
                "access_key_id": KEY_ID,
                "secret_access_key": KEY,
                "region": REGION,
                "disable_bulk_delete": True,
            },
            client_options={"allow_http": True},
        )


@contextmanager
def running_swift(folder: Path) -> Iterator[Swift]:
    """Start one whose files are in `folder`, and end it."""
    assert PROGRAMS.exists(), "OpenStack Swift is not installed: make .venv-swift/.ready"
    (folder / "devices" / "one").mkdir(parents=True)
    _check_attributes(folder)
    (folder / "swift.conf").write_text(_SWIFT)
    ports = dict(zip(KINDS, lasting_ports(len(KINDS)), strict=True))
    _make_rings(folder, {kind: ports[kind] for kind in STORAGE})
    with ExitStack() as stack:
        started = {
            kind: stack.enter_context(_process(folder, kind, port)) for kind, port in ports.items()
        }
        for kind, process in started.items():
            _wait_until_it_answers(process, ports[kind], folder / f"{kind}.log")
        yield Swift(ports["proxy"])


def bucket_store(
    swift: Swift, *, bucket: str = "", deadline_s: float = _DEADLINE_S, **changes: str
) -> BucketStore:
    """The relayer's store on a bucket, a new one if none is named; `changes` are settings."""
    named = swift.settings(f"{bucket or swift.bucket()}/relayer/one") | changes
    settings = Settings(**named)
    return BucketStore(bucket=settings.bucket, deadline_s=deadline_s)


def _check_attributes(folder: Path) -> None:
    try:
        os.setxattr(folder, "user.swift", b"")
    except OSError as error:
        raise AssertionError(
            f"Swift needs a folder with extended attributes, which {folder} has not:"
            " choose another one with --basetemp"
        ) from error


def _make_rings(folder: Path, ports: dict[str, int]) -> None:
    rings = [str(part) for item in ports.items() for part in item]
    program = [str(PROGRAMS / "python"), "-c", _RINGS, str(folder), *rings]
    subprocess.run(program, check=True, capture_output=True)


@contextmanager
def _process(folder: Path, kind: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """One of the four, about to answer."""
    values = {
        "kind": kind,
        "port": port,
        "folder": folder,
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "patient": _PATIENT_S,
        "region": REGION,
        "listed": LISTED_MAX,
        "key": KEY,
    }
    config = folder / f"{kind}.conf"
    config.write_text((_DEFAULT + (_STORING if kind in STORAGE else _PROXY)).format(**values))
    with (folder / f"{kind}.log").open("w") as output:
        process = subprocess.Popen(
            [*_UNTIL_WE_END, str(PROGRAMS / f"swift-{kind}-server"), str(config)],
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=START_S_MAX):
                return
        except urllib.error.HTTPError:
            return  # an answer is one, whatever it says
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"no answer; {log.read_text()[-2000:]}"
            time.sleep(0.1)
