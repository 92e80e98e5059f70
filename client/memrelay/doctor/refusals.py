"""Finds by elimination why a relayer is not reached, or refuses a key without a reason.

It does not own the checks (`relayer.py`, `key.py`).

- A relayer answers 401 to every request that it does not accept, and says no more. What differs is
  what else it accepts: the same key without an account, the owner's key, the same key before.
"""

import shlex
import socket
import ssl
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from memrelay.answers import read_json_object
from memrelay.config import (
    Settings,
    certificates_for,
    check_url,
    explain_connection_settings,
    is_loopback,
)
from memrelay.deadline import Deadline
from memrelay.doctor.findings import Verdict, problem
from memrelay.errors import MemrelayError, NotAuthenticated
from memrelay.exchange import ANSWER_BYTES_MAX, LONG_ANSWER_BYTES_MAX, Received, causes
from memrelay.local_time import when
from memrelay.models import KeyInfo
from memrelay.sealed.grants import read_grant
from memrelay.sealed.keys import account_id_of, account_text
from memrelay.session import Grants
from memrelay.signing import RequestSigner
from memrelay.sync_client import SyncMemoryClient
from memrelay.transport import httpx, socket_transport
from memrelay.trust_store import TrustState
from memrelay.unix_sockets import parse_socket

SIGNED_PATH = "/v1/grants"  # every key may ask for it


class Inquiry:
    """Single requests to a relayer, with all that it answers; nothing is repeated or believed."""

    def __init__(
        self, settings: Settings, *, clock: Callable[[], float] = time.time, timeout_s: float = 5.0
    ) -> None:
        self._identity = settings.identity
        self._clock = clock
        self.url = check_url(settings.url, allow_insecure=settings.allow_insecure)
        self._prefix = self.url.raw_path.decode("ascii").rstrip("/")
        self._timeout_s = timeout_s
        with explain_connection_settings():
            self._http = httpx.Client(
                transport=socket_transport(parse_socket(settings.url)),
                timeout=timeout_s,
                verify=certificates_for(self.url),
                trust_env=not is_loopback(self.url.host),
            )
        self._deadline = Deadline()
        self._deadline.watch(self._http)

    def get(self, path: str) -> Received:
        """Return the answer to an unsigned request.

        Raises:
            httpx.HTTPError: there was none.
        """
        return self._get(path, None)

    def get_signed(self, account_id: str) -> Received:
        """Return the answer to a request signed for an account; empty: whichever the key is in.

        Raises:
            httpx.HTTPError: there was none.
        """
        signer = RequestSigner(
            self._identity, account_id=account_id, path_prefix=self._prefix, clock=self._clock
        )
        return self._get(SIGNED_PATH, signer)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _get(self, path: str, signer: RequestSigner | None) -> Received:
        url = self.url.copy_with(path=self._prefix + path)
        headers = {"accept-encoding": "identity"}
        if signer is not None:
            headers |= signer.headers("GET", url, b"")
        return self._deadline.send(
            self._http,
            self._http.build_request("GET", url, headers=headers),
            timeout_s=self._timeout_s,
            # A key that may see all grants is told them.
            bytes_max=LONG_ANSWER_BYTES_MAX if signer else ANSWER_BYTES_MAX,
        )


def explain_unreachable(error: httpx.HTTPError, url: httpx.URL) -> Verdict:
    """Return why there was no answer."""
    found = list(causes(error))
    host = shlex.quote(url.host)
    port = url.port or {"http": 80}.get(url.scheme, 443)
    if any(isinstance(cause, socket.gaierror) for cause in found):
        return problem(f"No address is known for the name {url.host}.", f"nslookup {host}")
    certificate = next((c for c in found if isinstance(c, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        return problem(
            f"The certificate of {url.host} does not hold: {certificate.verify_message}. Name an "
            "authority of your own in SSL_CERT_FILE.",
            f"openssl s_client -connect {host}:{port} -servername {host}",
        )
    if any(isinstance(cause, ssl.SSLError) for cause in found):
        detail = f"Port {port} of {url.host} does not speak TLS; is it http, or another port?"
        return problem(detail, f"curl -v {_health(url)}")
    if isinstance(error, httpx.ProxyError):
        detail = f"The proxy that the environment names does not let through to {url.host}."
        return problem(detail, "env | grep -i _proxy")
    if any(isinstance(cause, ConnectionRefusedError) for cause in found):
        detail = f"Nothing listens on port {port} of {url.host}: the relayer is stopped, or the"
        here = "relayer serve" if is_loopback(url.host) else f"curl -v {_health(url)}"
        return problem(f"{detail} port is wrong.", here)
    if isinstance(error, httpx.ConnectTimeout):
        detail = f"{url.host} lets nobody connect in time: a firewall, or the machine is off."
        return problem(detail, f"curl -v {_health(url)}")
    if isinstance(error, httpx.TimeoutException):
        detail = f"{url.host} accepts connections and does not answer in time: it hangs."
        return problem(detail, f"curl -v {_health(url)}")
    return problem(f"The connection to {url.host} breaks.", f"curl -v {_health(url)}")


def _health(url: httpx.URL) -> str:
    return shlex.quote(f"{str(url).rstrip('/')}/health")


class Refusal(NamedTuple):
    """The reason for which a key is refused: a fixed word, and a sentence.

    The word is `clock`, `account`, `expired`, `revoked`, `ungranted`, `unknown account`, or
    `unclear` when this machine cannot know more.
    """

    cause: str
    detail: str


def refusal(
    inquiry: Inquiry,
    response: Received,
    settings: Settings,
    *,
    seen: TrustState,
    owner: Settings | None,
    now: datetime,
) -> Refusal:
    """Return why a relayer answered 401 to a request signed for the account of these settings.

    `owner` are the settings of another key of the account, which may be asked about this one.

    Raises:
        httpx.HTTPError: the relayer went away meanwhile.
    """
    if response.headers.get("x-auth-error") == "ERR_TIMESTAMP_OUT_OF_BOUNDS":
        return Refusal("clock", "The relayer's clock and this machine's are too far apart.")
    elsewhere = inquiry.get_signed(account_id="")
    if elsewhere.is_success:
        return Refusal(
            "account",
            f"This key belongs to the account {_account_of(elsewhere)}, not to"
            f" {settings.account_id}.",
        )
    told = owner and _ask_owner(owner, settings.identity.public_key.hex(), now)
    return told or _guess(settings, seen)


def _account_of(response: Received) -> str:
    try:
        listed = Grants.from_json(read_json_object(response.content)).grants
        return read_grant(listed[0].grant_bytes).account
    except (IndexError, MemrelayError):
        return "of another founder"


def _ask_owner(owner: Settings, public_key: str, now: datetime) -> Refusal | None:
    try:
        with SyncMemoryClient.from_settings(owner) as client:
            listed = client.keys()
    except NotAuthenticated:
        detail = "The owner's key is refused, too: this relayer does not know the account."
        return Refusal("unknown account", detail)
    except MemrelayError:
        return None  # whoever it is, it may not list keys
    for key in listed:
        if key.public_key == public_key:
            return _state(key, now)
    return Refusal("ungranted", "The owner's list has no such key: it was never granted.")


def _state(key: KeyInfo, now: datetime) -> Refusal:
    if key.revoked:
        return Refusal("revoked", "The owner revoked this key.")
    if key.expires_at is not None and key.expires_at <= now:
        return Refusal("expired", f"This key's grant ended at {when(key.expires_at)}.")
    detail = "The owner's list has this key as valid: something on the way alters what it sends."
    return Refusal("unclear", detail)


def _guess(settings: Settings, seen: TrustState) -> Refusal:
    if account_text(account_id_of(settings.identity.public_key)) == settings.account_id:
        detail = "The relayer does not know this account, or its founder's key was revoked."
        return Refusal("unknown account", detail)
    if seen.grant_serial or seen.receipt_serial:
        detail = "The relayer accepted this key before: it was revoked, or its grant ended."
        return Refusal("unclear", detail)
    detail = "The relayer does not accept this key: never granted, revoked or ended."
    return Refusal("unclear", detail)
