"""Every setting and every limit of a relayer, each with unit, default, range and reason.

One `Setting` per field drives the command line flags of `relayer serve`, the `RELAYER_…`
variables and `deploy/env.example`. It reads neither the environment nor files: `__main__.py`
hands the values in.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from relayer.origins import parse_origins

REGISTRATION_TOKEN_CHARACTERS_MIN: Final = 16  # what request limits keep from being guessed
SOCKET_PATH_BYTES_MAX: Final = 100  # the shortest limit among systems is 103
UPLOAD_MODELS: Final = ("manual", "sent")  # in place of a model: vectors that came with uploads


class SettingsError(Exception):
    """A setting is out of range; the message names the variable."""


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Return a dataclass field with its help text, unit, lowest and highest value."""
    return field(default=default, metadata={"text": text, "unit": unit, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The operator's choices; see `variable` for the names in the environment."""

    data_dir: Path = setting(Path("data"), "folder of the embedded database and the relayer's key")
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8000, "port to listen on; 0 picks a free one", low=0, high=65535)
    socket: str = setting(
        "", "Unix socket to listen on instead of host and port; this user alone may connect"
    )
    workers: int = setting(
        1, "serving processes; SIGHUP replaces two or more one by one, and one not at all", low=1
    )
    public_url: str = setting("", "URL clients reach this relayer by; its path is not signed")
    trusted_proxies: str = setting(
        "",
        "comma-separated addresses, no networks, whose X-Forwarded-Proto and -Host count where no"
        " public URL is set",
    )
    cors_origins: str = setting(
        "", "comma-separated origins whose web pages may ask, such as https://app.example.org"
    )
    database_url: str = setting(
        "",
        "PostgreSQL to use instead of the embedded one; beyond this machine, ?sslmode=verify-full",
    )
    database_direct_url: str = setting(
        "", "the same database past a pooler; set: RELAYER_DATABASE_URL is one of transactions"
    )
    database_connections: int = setting(10, "connections of one process", low=2)
    database_timeout_s: float = setting(10.0, "deadline of one statement", unit="s", low=0.1)
    key_file: str = setting("", "file of the relayer's identity; empty: <data-dir>/relayer.key")
    blob_store: str = setting(
        "postgres", "where blobs live: postgres, file:PATH, or s3://BUCKET/PREFIX"
    )
    blob_cache_bytes: int = setting(
        32 * 2**20, "sealed bytes of a bucket kept in memory by one process", unit="bytes", low=0
    )
    s3_endpoint: str = setting("", "URL of the store that has the bucket; empty: Amazon's")
    s3_region: str = setting("us-east-1", "region of the bucket")
    s3_access_key_id: str = setting("", "name of the key that opens the bucket")
    s3_secret_access_key: str = setting("", "that key")
    s3_plain_http: Literal["loopback", "anywhere"] = setting(
        "loopback", "where the endpoint may be without TLS"
    )
    registration: Literal["auto", "open", "token", "closed"] = setting(
        "auto",
        "who may create accounts over HTTP; auto: this machine alone, where host and public URL (if"
        " any) are loopback, else token",
    )
    registration_token: str = setting("", "the token that registration asks for")
    metrics_token: str = setting(
        "",
        "the token that /metrics asks for; empty: it answers this machine alone, where host and"
        " public URL (if any) are loopback, else nobody",
    )
    rate_limit: Literal["on", "off"] = setting("on", "request limits; off is for benchmarks")
    requests_per_minute: int = setting(
        12000, "weighted requests of an account", unit="1/min", low=1
    )
    key_requests_per_minute: int = setting(
        12000,
        "weighted requests of one key; bounds it once below those of its account",
        unit="1/min",
        low=1,
    )
    requests_per_hour: int = setting(300000, "weighted requests of an account", unit="1/h", low=1)
    storage_bytes_max: int = setting(
        10 * 2**30,
        "what an account may store: sealed texts, and the words and vectors that find them;"
        " 0: no bound",
        unit="bytes",
        low=0,
    )
    account_grants_max: int = setting(
        10_000, "grants and revocations an account may have, in all its time", low=1
    )
    embedder: Literal["auto", "builtin", "multilingual", "openai", "none"] = setting(
        "auto",
        "who embeds; auto: openai when an embedding model is named, else builtin (English);"
        " multilingual: a built-in model of 16 languages",
    )
    model_dir: str = setting("", "folder of the built-in models; empty: the user's cache folder")
    embedding_model: str = setting("", "model name at the OpenAI-compatible endpoints")
    embedding_dim: int = setting(1536, "dimension of that model's vectors", low=1)
    embedding_base_urls: str = setting(
        "", "comma-separated endpoints in order of fallback; empty: OPENAI_BASE_URL"
    )
    embedding_related: float = setting(
        0.3,
        "cosine from which two texts have something to do with each other, by that model;"
        " clients take what is below for unrelated",
        low=0.01,
        high=0.99,
    )
    embedding_timeout_s: float = setting(10.0, "deadline of one embedding call", unit="s", low=0.1)
    index_memory_bytes: int = setting(
        128 * 2**20,
        "indexes of often asked namespaces kept in memory by one process; sealed ones may have"
        " 64 MiB of any value; 0: no other",
        unit="bytes",
        low=0,
    )
    embedding_cache_entries: int = setting(20000, "vectors of queries kept in memory", low=0)
    llm_model: str = setting("", "chat model for extraction and answers; empty: none")
    llm_timeout_s: float = setting(
        20.0,
        "deadline of one model call; four times that where no request waits. Above 0.85 of a "
        "request's deadline, turns wait for their facts unless the last call was quick",
        unit="s",
        low=0.1,
    )
    request_timeout_s: float = setting(25.0, "deadline of one request", unit="s", low=1)
    idle_exit_s: float = setting(
        0.0,
        "ends by itself when so long nobody asked or listened and nothing waited; 0: never",
        unit="s",
        low=0,
    )
    openai_base_url: str = setting(
        "https://api.openai.com/v1", "OpenAI-compatible endpoint, as the openai package reads it"
    )
    openai_api_key: str = setting("", "its key, as the openai package reads it")
    webhook_reach: Literal["public", "private", "none"] = setting(
        "public", "whom webhooks may call: public addresses over TLS, private networks too, or none"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "least severe line")

    def __post_init__(self) -> None:
        for item in fields(self):
            low, high, value = item.metadata["low"], item.metadata["high"], getattr(self, item.name)
            if low is not None and not value >= low:  # no number is not at least anything
                raise SettingsError(f"{variable(item.name)} must be at least {low}")
            if high is not None and not value <= high:
                raise SettingsError(f"{variable(item.name)} must be at most {high}")
        self._check_listening()
        self._check_models()
        _check_addresses(self.trusted_proxies)
        _check_database("database_url", self.database_url)
        _check_database("database_direct_url", self.database_direct_url)
        if self.blob_store.startswith("s3:"):
            _ = self.bucket
        elif not (self.blob_store == "postgres" or _FOLDER.fullmatch(self.blob_store)):
            raise SettingsError("RELAYER_BLOB_STORE is postgres, file:PATH or s3://BUCKET/PREFIX")
        if self.database_direct_url and not self.database_url:
            raise SettingsError("RELAYER_DATABASE_DIRECT_URL needs RELAYER_DATABASE_URL")
        if self.registration == "token" and not self.registration_token:
            raise SettingsError("RELAYER_REGISTRATION=token needs RELAYER_REGISTRATION_TOKEN")
        if 0 < len(self.registration_token) < REGISTRATION_TOKEN_CHARACTERS_MIN:
            raise SettingsError("RELAYER_REGISTRATION_TOKEN is too short: 16 characters at least")
        if 0 < len(self.metrics_token) < REGISTRATION_TOKEN_CHARACTERS_MIN:
            raise SettingsError("RELAYER_METRICS_TOKEN is too short: 16 characters at least")
        if self.embedder == "openai" and not self.embedding_model:
            raise SettingsError("RELAYER_EMBEDDER=openai needs RELAYER_EMBEDDING_MODEL")
        if self.embedding_model in UPLOAD_MODELS:
            raise SettingsError(
                f"RELAYER_EMBEDDING_MODEL must not be {self.embedding_model!r}: in the database"
                " this names vectors that clients sent; give the model another name at its endpoint"
            )
        if self.embedding_dim > Limits.embedding_dim_max:
            raise SettingsError(f"RELAYER_EMBEDDING_DIM must be at most {Limits.embedding_dim_max}")

    def _check_listening(self) -> None:
        _check_public_url(self.public_url)
        try:
            parse_origins(self.cors_origins)
        except ValueError as error:
            raise SettingsError(f"RELAYER_CORS_ORIGINS: {error}") from None
        size = len(os.fsencode(Path(self.socket).absolute())) if self.socket else 0
        if size > SOCKET_PATH_BYTES_MAX:
            raise SettingsError(
                f"RELAYER_SOCKET is too long: {size} bytes, {SOCKET_PATH_BYTES_MAX} at most"
            )
        if self.idle_exit_s and self.workers > 1:
            raise SettingsError("RELAYER_IDLE_EXIT_S is for one worker")

    def _check_models(self) -> None:
        _check_model_url("OPENAI_BASE_URL", self.openai_base_url)
        for number, url in enumerate(self.embedding_urls, 1):
            which = f" (number {number})" if len(self.embedding_urls) > 1 else ""
            _check_model_url(f"RELAYER_EMBEDDING_BASE_URLS{which}", url)
        if self.embedding_base_urls and not self.embedding_urls:
            raise SettingsError("RELAYER_EMBEDDING_BASE_URLS names no endpoint")

    @property
    def embedding_urls(self) -> list[str]:
        """Return the endpoints that `embedding_base_urls` names, in their order."""
        return [url for url in map(str.strip, self.embedding_base_urls.split(",")) if url]

    @property
    def bucket(self) -> "Bucket":
        """Return the bucket that `blob_store` names.

        Raises:
            SettingsError: it names none, or one that cannot be reached safely.
        """
        named = _BUCKET.fullmatch(self.blob_store)
        prefix = (named and named["prefix"]) or ""
        if named is None or {".", ".."} & set(prefix.split("/")):
            raise SettingsError("RELAYER_BLOB_STORE names no bucket: s3://BUCKET/PREFIX")
        if not (self.s3_access_key_id and self.s3_secret_access_key):
            raise SettingsError(
                "a bucket needs RELAYER_S3_ACCESS_KEY_ID and RELAYER_S3_SECRET_ACCESS_KEY"
            )
        if _REGION.fullmatch(self.s3_region) is None:
            raise SettingsError("RELAYER_S3_REGION is letters, digits and hyphens")
        endpoint = self.s3_endpoint or f"https://s3.{self.s3_region}.amazonaws.com"
        _check_endpoint(endpoint, plain_anywhere=self.s3_plain_http == "anywhere")
        return Bucket(
            name=named["name"],
            prefix=prefix,
            endpoint=endpoint.rstrip("/"),
            region=self.s3_region,
            access_key_id=self.s3_access_key_id,
            secret_access_key=self.s3_secret_access_key,
        )

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in SECRET}
        return f"Settings({shown})"


SECRET: Final = frozenset(
    {
        "registration_token",
        "metrics_token",
        "openai_api_key",
        "database_url",
        "database_direct_url",
        "s3_secret_access_key",
    }
)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The address of a bucket, and the key that opens it."""

    name: str
    prefix: str
    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)


_BUCKET: Final = re.compile(
    r"s3://(?P<name>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w.-]+(?:/[\w.-]+)*)?/?)?",
    re.ASCII,
)
_FOLDER: Final = re.compile(r"file:.*\S.*", re.DOTALL)  # without a path: where it was typed
_REGION: Final = re.compile("[a-zA-Z0-9-]{1,64}")
# Without spaces, a query and a fragment; a comma is between two.
_ONE_URL: Final = re.compile(r"[^\s?#,\x00-\x1f\x7f]*")
_SEVERAL: Final = "; several are for RELAYER_EMBEDDING_BASE_URLS"


def _check_database(name: str, url: str) -> None:
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise SettingsError(
            f"{variable(name)} is no URL of a database: postgresql://USER@HOST:PORT/NAME"
        )
    try:
        urlsplit(url)
    except ValueError:  # it quotes what it could not read, which may be a password
        raise SettingsError(
            f"{variable(name)} is malformed: write signs in a password as %XX"
        ) from None


def _check_public_url(url: str) -> None:
    """Refuse what clients could not put a path behind."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    plain = not ("@" in url or "?" in url or "#" in url)
    if url and not (host and parts.scheme in ("http", "https") and plain):
        raise SettingsError("RELAYER_PUBLIC_URL is no URL of a server: https://memory.example.org")


def _check_model_url(given: str, url: str) -> None:
    """Refuse what is no plain URL of one server: a path is put behind it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise SettingsError(f"{given} holds a key, for which there is OPENAI_API_KEY")
    whole = _ONE_URL.fullmatch(url) is not None
    if not (host and whole and parts.scheme in ("http", "https")):
        raise SettingsError(
            f"{given} is no URL of a server: https://models.example.org/v1"
            + (_SEVERAL if "," in url else "")
        )


def _check_addresses(listed: str) -> None:
    for address in filter(None, map(str.strip, listed.split(","))):
        try:
            ip_address(address)
        except ValueError:
            raise SettingsError(
                f"RELAYER_TRUSTED_PROXIES: {address} is no address; names and networks are not"
                " looked up"
            ) from None


def _check_endpoint(url: str, *, plain_anywhere: bool) -> None:
    """Refuse what is no plain URL of a server, and one without TLS that is far away."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise SettingsError("RELAYER_S3_ENDPOINT is no URL of a server")
    if parts.username is not None or parts.password is not None:
        raise SettingsError("RELAYER_S3_ENDPOINT holds a key, which has settings of its own")
    if parts.scheme == "http" and not plain_anywhere and not is_loopback(host):
        raise SettingsError(
            "RELAYER_S3_ENDPOINT is without TLS and not on this machine;"
            " RELAYER_S3_PLAIN_HTTP=anywhere lets it be"
        )


def is_loopback(host: str) -> bool:
    """Return true if a host name or address is this machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_local(settings: Settings) -> bool:
    """Return true if only this machine can reach the relayer, unless by a proxy on it."""
    public_host = urlsplit(settings.public_url).hostname
    listens_here = bool(settings.socket) or is_loopback(settings.host)
    return listens_here and (public_host is None or is_loopback(public_host))


def open_to_this_machine(settings: Settings) -> Sequence[str]:
    """Return what a request at a loopback address gets without a token, for no other reason."""
    if settings.socket or not is_local(settings):  # a socket opens to its own user alone
        return ()
    registration = ["registration"] if settings.registration == "auto" else []
    return [*registration, *(["/metrics"] if not settings.metrics_token else [])]


def may_lack_tls(url: str) -> bool:
    """Return true if a database's URL leads beyond this machine and does not say whether by TLS.

    Who is between then only has to say that the server has none.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    hosts = (query.get("host") or parts.netloc.rpartition("@")[2]).split(",")
    return "sslmode" not in query and not all(map(_is_here, map(unquote, hosts)))


def _is_here(host: str) -> bool:
    """Return true if a host of a database's URL, maybe with a port, is this machine or a socket."""
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host in ("", "localhost") or host.startswith(("/", "@")) or is_loopback(host)


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return name.upper() if name.startswith("openai_") else f"RELAYER_{name.upper()}"


def list_unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return the names that look like a setting's variable and are none, in order."""
    known = {variable(item.name) for item in fields(Settings)} | {"RELAYER_OWNER_KEY"}
    known |= {f"{variable(name)}_FILE" for name in SECRET}
    return sorted(name for name in environment if name.startswith("RELAYER_") and name not in known)


class Limits:
    """Bounds on every input. They are the protocol's, so an operator does not choose them."""

    head_bytes_max: Final = 64 * 2**10  # request line and headers; an unlock header has 6 KiB
    connections_max: Final = 800  # of one process, to which systems give 1,024 files
    body_bytes_max: Final = 2 * 2**20  # the reference's; also bounds what hashing a body costs
    bodies_bytes_max: Final = 256 * 2**20  # of all requests under way in one process, but for
    body_bytes_free: Final = 64 * 2**10  # the first of each
    stand_in_bytes_max: Final = 16 * 2**10  # of what MemWal's clients ask a blockchain, unsigned
    requests_at_once_max: Final = 2  # of one account in one process; the others wait
    requests_waiting_max: Final = 64  # of one account in one process
    revoking_waiting_max: Final = 64  # of one owner's key: what it takes rights away by, one by one
    text_bytes_max: Final = 2**20  # one remembered text
    # Different words, tags and pairs of metadata of one memory, each a row: a mebibyte of English
    # has some 20,000. An edit moves that many rows under the account's lock.
    memory_words_max: Final = 100_000
    bulk_text_bytes_max: Final = 64 * 2**10  # one text of a bulk request
    analyze_bytes_max: Final = 64 * 2**10  # one conversation; a model has to read it
    query_bytes_max: Final = 16 * 2**10  # a recall query or question
    bulk_items_max: Final = 20
    recall_limit_max: Final = 100
    recall_namespaces_max: Final = 16  # whose keys surely fit into one unlock header
    recall_writers_max: Final = 64
    count_periods_max: Final = 400  # a year of days, and some
    counted_max: Final = 200_000
    recall_tokens_max: Final = 100_000
    goal_bytes_max: Final = 4 * 2**10
    aliases_max: Final = 64  # words of a query that have other words
    alias_words_max: Final = 16  # other words of one word
    alias_characters_max: Final = 128
    aliases_characters_max: Final = 8 * 2**10  # of names and others together, that are looked at
    page_limit_max: Final = 200
    blobs_asked_max: Final = 100
    blobs_bytes_max: Final = 8 * 2**20  # sealed bytes of one answer
    ttl_s_min: Final = 60
    ttl_s_max: Final = 10 * 365 * 24 * 3600
    working_life_s: Final = 24 * 3600  # of what is kept for the work at hand, unless said otherwise
    facts_max: Final = 20
    revisions_max: Final = 100  # of one memory, so that its history is read in a few answers
    tags_max: Final = 32
    tag_characters_max: Final = 128
    source_characters_max: Final = 512
    speaker_characters_max: Final = 60
    metadata_bytes_max: Final = 8 * 2**10
    metadata_entries_max: Final = 64
    idempotency_key_characters_max: Final = 256
    label_characters_max: Final = 128
    namespaces_max: Final = 10_000
    grant_bytes_mean: Final = 2 * 2**10  # of all objects of a chain: four namespaces each
    # Beyond an account's grants, so that a full chain does not keep a lost key in the account.
    revocations_spare: Final = 1_000
    rotation_grants_max: Final = 2_000  # more do not fit into a body anyway
    rotation_revocations_max: Final = 16
    # One memory that moves: a text of the greatest length, each of its words, a vector a passage.
    import_bytes_max: Final = 8 * 2**20
    # Of all memories of one request: more than the words and passages of any one text.
    import_postings_max: Final = 400_000
    import_vectors_max: Final = 10_000
    # Blobs of what an account erased, named by tombstones that it brings: they count for no quota,
    # and a million memories with some revisions each can still move.
    erased_blobs_max: Final = 4_000_000
    exported_ids_max: Final = 10  # read again: memories, each with its earlier revisions, or turns
    query_words_max: Final = 256  # distinct words of a query, and as many aliases, are searched for
    embedding_dim_max: Final = 4_000  # halfvec rows stored PLAIN must fit a page
    manual_bytes_max: Final = 2**20
    webhooks_max: Final = 16  # of one account
    webhook_url_characters_max: Final = 2_048
    webhook_namespaces_max: Final = 64
    streams_max: Final = 64  # open at once in one process
    streams_of_account_max: Final = 8
    stream_life_s: Final = 300  # then the client connects again, and is checked again
    clock_skew_s_max: Final = 300
    # Twice the skew, as a request can arrive that much later than signed; and what the clocks may
    # differ that judge its time (this machine's, another relayer's) and its nonce (the database's).
    nonce_life_s: Final = 720
    idempotency_life_s: Final = 24 * 3600
    unlock_key_life_s: Final = 24 * 3600
    unlock_key_overlap_s: Final = 600
