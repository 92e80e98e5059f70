"""A web server that takes webhooks, over TLS or not, for tests: real sockets, no framework."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Post:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Hook:
    """What came, and what is answered: `answers` in order, the last one from then on."""

    port: int = 0
    posts: list[Post] = field(default_factory=list)
    answers: list[str] = field(default_factory=lambda: ["204 No Content"])
    headers: str = ""
    hangs: bool = False
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, _, v in (one.partition(": ") for one in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.posts.append(Post(line, headers, body))
            self.came.set()
            if self.hangs:
                await reader.read()
            status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            writer.write(f"HTTP/1.1 {status}\r\n{self.headers}content-length: 0\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[Hook]:
    """A server on a free port of 127.0.0.1."""
    hook = Hook()
    server = await asyncio.start_server(hook.answer, "127.0.0.1", 0, ssl=tls)
    hook.port = server.sockets[0].getsockname()[1]
    async with server:
        yield hook


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(a server's context, a client's that believes it) for one name."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=test",
         "-addext", f"subjectAltName=DNS:{name}"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))
