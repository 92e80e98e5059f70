"""A relayer whose certificate an authority of its own signed, which the environment names."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.cli import EXIT_FAILED, main
from memrelay.errors import TransportError
from tests.loopback_proxy import loopback_proxy
from tests.own_server import authority_and_server, other_authority
from tests.processes import RunningRelayer

TEA = "Anna prefers green tea over coffee in the morning."


@dataclass(frozen=True)
class Front:
    """Where a relayer is reached by TLS, and the certificates of authorities in both forms."""

    url: str
    named: dict[str, Path]
    other: Path


@pytest.fixture(scope="module")
def front(
    shared_relayer: RunningRelayer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("authorities")
    authority, context = authority_and_server(folder)
    hashed = folder / "hashed"
    hashed.mkdir()
    asked = ["openssl", "x509", "-hash", "-noout", "-in", str(authority)]
    name = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(authority, hashed / f"{name}.0")
    named = {"SSL_CERT_FILE": authority, "SSL_CERT_DIR": hashed}
    with loopback_proxy(shared_relayer.url, tls=context) as proxy:
        yield Front(proxy.url, named, other_authority(folder))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names no authority, and a proxy at which nobody is."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_both_clients_believe_the_authority_that_is_named(
    front: Front, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(front.named[variable]))
    account = await MemoryClient.create_account(front.url)
    owner: dict[str, Any] = {
        "url": front.url,
        "account_id": account.account_id,
        "private_key": account.private_key,
        "relayer_key": account.relayer_key,
    }
    async with MemoryClient(**owner) as memory:
        stored = await memory.remember(TEA)
    with SyncMemoryClient(**owner) as blocking:
        assert blocking.get(stored.id).text == TEA


async def test_nobody_else_is_believed(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError):
        await MemoryClient.create_account(front.url)
    monkeypatch.setenv("SSL_CERT_FILE", str(front.other))
    with pytest.raises(TransportError):
        SyncMemoryClient.create_account(front.url)


def test_the_commands_and_the_doctor_believe_it_too(
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = ["--profile", str(tmp_path / "profile.json")]
    monkeypatch.setenv("SSL_CERT_FILE", str(front.named["SSL_CERT_FILE"]))
    assert main(["init", front.url, *profile], {}) == 0
    assert main(["remember", TEA, *profile], {}) == 0
    assert main(["doctor", *profile], {}) == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(front.other))
    capsys.readouterr()
    assert main(["doctor", *profile], {}) == EXIT_FAILED
    assert "certificate" in capsys.readouterr().out


def test_without_tls_no_authority_is_read(
    shared_relayer: RunningRelayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than a request to a relayer on this machine."""
    read = ssl.SSLContext.load_verify_locations
    seen: list[tuple[Any, ...]] = []

    def reading(context: ssl.SSLContext, *args: Any, **options: Any) -> None:
        seen.append(args)
        read(context, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", reading)
    SyncMemoryClient.create_account(shared_relayer.url)
    assert seen == []
