"""PostgreSQL as an operator offers it: over TCP, with TLS only, under a certificate to be checked.

The embedded server's programs know no TLS. So a test's database is reached by its socket, behind
PostgreSQL's own way to begin TLS: a real handshake, and nothing passes that is not encrypted.
"""

import asyncio
import datetime
import ipaddress
import re
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.loopback_proxy import loopback_server, relay

HOST = "127.0.0.1"
_SSL_REQUEST = struct.pack("!II", 8, 80877103)
_FIELDS = b"SFATAL\0VFATAL\0C28000\0Mno entry for this host, no encryption\0\0"
_REFUSED = b"E" + struct.pack("!I", 4 + len(_FIELDS)) + _FIELDS
_BACKEND_KEY = re.compile(rb"K\0\0\0\x0c.{4}", re.DOTALL)
_OTHER_KEY = b"K\0\0\0\x0c\x7f\0\0\1"


@dataclass
class OwnServer:
    """How to reach it, and how often it was."""

    connect_args: dict[str, Any]
    authority: Path  # the certificate of whoever signed the server's
    context: ssl.SSLContext
    renames: bool = False  # processes, as a pooler does that has sessions of its own
    port: int = 0
    refused: list[bytes] = field(default_factory=list)
    encrypted: int = 0

    def url(self, *, host: str = HOST, **options: str) -> str:
        """Its address with libpq's options; without any, as an operator should have it."""
        options = options or {"sslmode": "verify-full", "sslrootcert": str(self.authority)}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        user, password = self.connect_args["user"], self.connect_args["password"]
        database = self.connect_args["database"]
        return f"postgresql://{user}:{password}@{host}:{self.port}/{database}?{query}"

    async def lead(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        """Carry one connection to the server's socket, if it is encrypted."""
        with suppress(OSError, asyncio.IncompleteReadError):
            first = await near.readexactly(len(_SSL_REQUEST))
            if first != _SSL_REQUEST:
                self.refused.append(first)
                answer.write(_REFUSED)
                await answer.drain()
            else:
                answer.write(b"S")
                await answer.start_tls(self.context)
                self.encrypted += 1
                await relay((near, answer), await self._connected(), self._named)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder, port = self.connect_args["host"], self.connect_args["port"]
        return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")

    def _named(self, data: bytes) -> bytes:
        return _BACKEND_KEY.sub(_OTHER_KEY, data) if self.renames else data


@contextmanager
def own_server(
    connect_args: dict[str, Any], folder: Path, *, renames: bool = False
) -> Iterator[OwnServer]:
    """A database reached by TLS only, as long as it is needed."""
    authority, context = authority_and_server(folder)
    server = OwnServer(connect_args, authority, context, renames)
    with loopback_server(server.lead) as server.port:
        yield server


def authority_and_server(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """The certificate of an authority, and a server's context with one that it signed."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, private = folder / "authority.crt", folder / "server.pem"
    authority.write_bytes(_certificate("authority", authority_key, "authority", authority_key))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + _certificate("server", key, "authority", authority_key, address=HOST)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(private)
    return authority, context


def other_authority(folder: Path) -> Path:
    """The certificate of an authority that signed nothing here."""
    key = ec.generate_private_key(ec.SECP256R1())
    path = folder / "other.crt"
    path.write_bytes(_certificate("authority", key, "authority", key))
    return path


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    address: str = "",
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not address, path_length=None), critical=True)
    )
    if address:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(issuer_key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
