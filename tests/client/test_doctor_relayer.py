"""`memrelay doctor` on a relayer that is not reached, has another clock or another key."""

import itertools
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from memrelay import SyncMemoryClient
from memrelay.doctor import PROBLEM, SKIPPED, WARNING, Case, examine
from memrelay.doctor.refusals import Inquiry
from memrelay.errors import TransportError
from memrelay.exchange import Received
from memrelay.sealed.keys import Identity
from tests.client.doctor_scene import (
    DEPENDENT,
    HOUR_S,
    Machine,
    answering,
    listening,
    machine,
    states,
    the_problem,
    user,
)
from tests.optional import unwrap

__all__ = ["machine", "user"]  # fixtures

# Reaching the relayer


def test_a_stopped_relayer(user: Machine) -> None:
    with listening() as url:
        pass
    user.write(url=url)
    found = user.examine()
    assert the_problem(found, "relayer").command == "relayer serve"
    assert "Nothing listens" in found["relayer"].detail
    assert [name for name in DEPENDENT[1:] if found[name].state != SKIPPED] == []


def test_a_relayer_that_hangs(user: Machine) -> None:
    with listening() as url:
        user.write(url=url)
        found = the_problem(user.examine(timeout_s=0.2), "relayer")
    assert "does not answer in time" in found.detail
    assert found.command == f"curl -v {url}/health"


def test_a_connection_that_breaks(user: Machine) -> None:
    with listening(closes=True) as url:
        user.write(url=url)
        assert "breaks" in the_problem(user.examine(), "relayer").detail


def test_a_name_without_an_address(user: Machine, monkeypatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    user.write(url="https://relayer.invalid")
    found = the_problem(user.examine(), "relayer")
    assert "No address" in found.detail
    assert found.command == "nslookup relayer.invalid"


def test_a_port_without_tls(user: Machine, shared_relayer) -> None:
    user.write(url=shared_relayer.url.replace("http://", "https://"))
    assert "does not speak TLS" in the_problem(user.examine(), "relayer").detail


def test_a_certificate_that_nobody_vouches_for(user: Machine, tmp_path: Path) -> None:
    with answering({}, certificate=self_signed(tmp_path / "certificate.pem")) as url:
        user.write(url=url)
        found = the_problem(user.examine(), "relayer")
        client = SyncMemoryClient.from_profile(user.profile)
        with client, pytest.raises(TransportError) as refused:
            client.list()
    assert "certificate of 127.0.0.1 does not hold" in found.detail
    assert "certificate verify failed" in str(refused.value.__cause__)
    assert unwrap(found.command).startswith("openssl s_client -connect 127.0.0.1:")


def self_signed(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, sealing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, form, sealing) + certificate.public_bytes(pem))
    return path


@pytest.mark.parametrize("answers", [{}, {"/health": []}, {"/health": {"up": True}}], ids=str)
def test_something_else_than_a_relayer(user: Machine, answers) -> None:
    with answering(answers) as url:
        user.write(url=url)
        found = the_problem(user.examine(), "relayer")
    assert "Something else than a relayer" in found.detail
    assert found.command == f"curl -i {url}"


def test_a_relayer_that_something_stands_before(user: Machine, monkeypatch) -> None:
    """What succeeded alone is a relayer's word, whatever it looks like."""
    good = Received(503, {}, b'{"status": "ok"}')
    monkeypatch.setattr(Inquiry, "get", lambda self, path: good)
    found = the_problem(user.examine(), "relayer")
    assert "(503)" in found.detail


def test_another_protocol(user: Machine) -> None:
    answers = {"/health": {"status": "ok"}, "/version": {"apiVersion": "2.0.0"}}
    with answering(answers) as url:
        user.write(url=url)
        found = user.examine()
    assert the_problem(found, "version").command == "pip install --upgrade ./client"
    assert found["key"].state == SKIPPED


# The clock


class Clock:
    """The time of a machine that may be wrong."""

    shift_s = 0

    def __call__(self) -> float:
        return time.time() + self.shift_s


@pytest.mark.parametrize(("shift_s", "off"), [(HOUR_S, "ahead of"), (-HOUR_S, "behind")])
def test_a_clock_that_is_wrong(user: Machine, shift_s: int, off: str) -> None:
    found = user.examine(clock=lambda: time.time() + shift_s)
    detail = the_problem(found, "clock").detail
    assert detail.endswith(f" s {off} the relayer's; 300 are allowed.")
    assert "sudo" in found["clock"].command
    assert (found["key"].state, found["identity"].state) == (SKIPPED, SKIPPED)


@pytest.mark.parametrize(("shift_s", "off"), [(150, "ahead of"), (-150, "behind")])
def test_a_clock_that_still_works(user: Machine, shift_s: int, off: str) -> None:
    found = user.examine(clock=lambda: time.time() + shift_s)
    assert (found["clock"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["clock"].detail.endswith(f" s {off} the relayer's.")


@pytest.mark.parametrize(
    ("shift_s", "said"),
    [
        (0, "as the relayer's"),
        (2, "as the relayer's"),  # what a server tells is cut to the second, and may be older
        (5, "4 s ahead of the relayer's"),
        (-5, "6 s behind the relayer's"),
    ],
)
def test_a_clock_is_as_exact_as_the_relayer_tells(user: Machine, shift_s: int, said: str) -> None:
    now_s = 1_800_000_000
    with answering({"/health": {"status": "ok"}}, time_s=now_s - shift_s) as url:
        user.write(url=url)
        assert user.examine(clock=lambda: now_s + 0.9)["clock"].detail == said


def test_a_relayer_that_takes_its_time_has_the_same_clock(user: Machine) -> None:
    seconds = itertools.count(1_800_000_000, 20)
    with answering({"/health": {"status": "ok"}}, time_s=1_800_000_010) as url:
        user.write(url=url)
        found = user.examine(clock=lambda: float(next(seconds)))
    assert found["clock"].detail == "as the relayer's"


def test_a_clock_that_only_the_relayer_finds_wrong(user: Machine) -> None:
    """A proxy that answers for the relayer may tell another time."""
    clock = Clock()
    found = {}
    for finding in examine(Case(environ=user.environ, clock=clock)):
        found[finding.check] = finding
        clock.shift_s = HOUR_S if finding.check == "identity" else clock.shift_s
    assert "too far apart" in the_problem(found, "key").detail
    assert "sudo" in unwrap(found["key"].command)


# The relayer's identity


def test_another_relayer_than_the_pinned_one(user: Machine) -> None:
    other = Identity.generate().public_key.hex()
    user.write(relayer_key=other)
    found = the_problem(user.examine(), "identity")
    assert f", not {other[:4]}…{other[-4:]}." in found.detail
    assert found.command == "memrelay trust KEY"


def test_a_wrong_pin_in_the_environment(user: Machine) -> None:
    user.environ["MEMRELAY_RELAYER_KEY"] = Identity.generate().public_key.hex()
    found = user.examine()
    assert the_problem(found, "identity").command == "export MEMRELAY_RELAYER_KEY=KEY"
    assert found["grants"].state == SKIPPED
