"""Holds the parts of both clients: options, session, and the HTTP request of a step.

It does not own carrying steps out (`async_client.py`, `sync_client.py`) or any operation
(`operations/`).
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict, Unpack

from memrelay.config import Settings, check_url, is_loopback
from memrelay.errors import TransportError
from memrelay.events import listen
from memrelay.exchange import Incoming, Repeating, Send, Waking
from memrelay.sealed.keys import Identity, account_id_of, account_text
from memrelay.session import Session
from memrelay.signing import RequestSigner
from memrelay.transport import httpx
from memrelay.unix_sockets import check_socket_folder, parse_socket

_CONNECT_TIMEOUT_S = 5.0
PAGE_LIMIT = 100


class Limits(TypedDict, total=False):
    """Times: of one attempt, of a call with all its attempts, and that a relayer keeps keys.

    `attempts_max` 1 never repeats a request; `repeating` is told why one is about to be.
    """

    timeout_s: float
    deadline_s: float
    hold_s: int
    attempts_max: int
    repeating: Repeating | None


class Choices(Limits, total=False):
    """The options that have a default; the words are those of `Settings`."""

    namespace: str
    aliases: Mapping[str, Sequence[str]]
    relayer_key: str | None
    allow_insecure: bool
    seen_path: Path | None


class Options(Choices):
    """The arguments of both clients."""

    url: str
    account_id: str
    private_key: str
    custody: NotRequired[str]


class Client:
    """A client that sends nothing yet: settings, session and the request of a step."""

    def __init__(self, **options: Unpack[Options]) -> None:
        values: dict[str, Any] = dict(options)
        names = Limits.__annotations__
        limits = {name: values.pop(name) for name in names if name in values}
        self.settings = Settings(**values)
        self._url = check_url(self.settings.url, allow_insecure=self.settings.allow_insecure)
        self._socket = parse_socket(self.settings.url)
        if self._socket is not None:
            check_socket_folder(self._socket)
        wake = None if self._socket is None else functools.partial(_wake, self._socket)
        self._session = Session(self.settings, wake=wake, **limits)
        self._listen = functools.partial(
            listen,
            relayer=self.settings.url,
            monotonic=self._session.monotonic,
            repeating=limits.get("repeating"),
            wake=wake,
        )
        prefix = self._url.raw_path.decode("ascii").rstrip("/")
        self._base = f"{self._url.scheme}://{self._url.netloc.decode('ascii')}{prefix}"
        # It asks for few, again and again.
        self._parsed = functools.lru_cache(maxsize=64)(httpx.URL)
        self._signer = RequestSigner(
            self._session.identity, account_id=self.settings.account_id, path_prefix=prefix
        )

    @property
    def receipt_seq(self) -> int:
        """The number of the newest receipt that was followed; 0 before the first."""
        return self._session.trust_store.value.checked_seq

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Return a client of these settings; `options` are the constructor's other arguments."""
        values = {name: getattr(settings, name) for name in Settings.__dataclass_fields__}
        return cls(**values, **options)

    @classmethod
    def from_profile(cls, profile: str | Path | None = None, **options: Any) -> Self:
        """Return a client of the environment, completed by a profile file.

        Raises:
            ConfigError: something is missing, malformed or readable by others.
        """
        return cls.from_settings(Settings.load(profile), **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.url!r}, key={self.settings.masked_key})"

    def _request(self, step: Send) -> httpx.Request:
        url = self._parsed(self._base + step.target)
        headers = {"accept": "application/json", "accept-encoding": "identity", **step.headers}
        if step.body:
            headers["content-type"] = "application/json"
        if step.signed:
            # httpx would let `auth` set each of them in the finished request, which takes longer.
            headers |= self._signer.headers(step.method, url, step.body)
        timeout = httpx.Timeout(step.timeout_s, connect=min(_CONNECT_TIMEOUT_S, step.timeout_s))
        return httpx.Request(
            step.method,
            url,
            content=step.body or None,
            headers=headers,
            extensions={"timeout": timeout.as_dict()},
        )

    def _make_incoming(self, response: httpx.Response, step: Send) -> Incoming:
        until_s = self._session.monotonic() + step.timeout_s
        return Incoming(
            response,
            left_s=lambda: until_s - self._session.monotonic(),
            bytes_max=step.answer_bytes_max,
        )

    def _is_proxied(self) -> bool:
        # A proxy from the environment has no business between two ends of one machine.
        return not is_loopback(self._url.host)


def _wake(socket: Path, error: TransportError, until_s: float, tell: Repeating | None) -> Waking:
    """Have the relayer of a data folder listen, if it is one that is started on demand."""
    from memrelay.local_relayer import LocalRelayer  # noqa: PLC0415 - most find it listening

    yield from LocalRelayer(socket).wake(error, until_s, tell)


def founder_options(url: str, choices: Choices, identity: Identity | None) -> Options:
    """Return the options of the client that founds an account, as `identity` or a new one."""
    founder = identity or Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    seed = founder.seed_hex()
    return {**choices, "url": url, "account_id": account_id, "private_key": seed, "custody": "auto"}
