"""Settings of a client, from the environment and a private profile file.

It does not own keys' meaning (`sealed/keys.py`) or how private files are kept (`secure_files.py`).

- The environment wins over the profile. A profile that others could read is refused.
"""

import ipaddress
import json
import os
import re
import ssl
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memrelay.errors import ConfigError, Invalid
from memrelay.sealed.keys import (
    Identity,
    account_bytes,
    mask_key,
    normalise_namespace,
    public_key_bytes,
)
from memrelay.secure_files import read_private
from memrelay.transport import httpx
from memrelay.unix_sockets import BASE_URL, parse_socket

CUSTODIES = ("auto", "sealed", "managed")
VARIABLES = {
    "url": "MEMRELAY_URL",
    "account_id": "MEMRELAY_ACCOUNT_ID",
    "private_key": "MEMRELAY_PRIVATE_KEY",
    "namespace": "MEMRELAY_NAMESPACE",
    "relayer_key": "MEMRELAY_RELAYER_KEY",
    "custody": "MEMRELAY_CUSTODY",
    "allow_insecure": "MEMRELAY_ALLOW_INSECURE",
}
ALIASES_MAX, ALIAS_WORDS_MAX, ALIAS_CHARACTERS_MAX = 64, 16, 128
_PROXIES = ("all_proxy", "https_proxy", "http_proxy")  # in either case
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # the first of them wins
_PROFILE_MEMBERS = {*VARIABLES, "aliases"}
_TEXTS = ("url", "account_id", "private_key", "namespace", "custody")
_AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a client: its relayer, its key, and the namespace in which it works.

    `custody` is `sealed` (always unlock), `managed` (never) or `auto`: ask once, and stay with
    sealed for good where the account was sealed once. `aliases` are other words for words of a
    query, sent with every recall: {"k8s": ["kubernetes"]}.

    Raises:
        ConfigError: a value is malformed, or the URL is plain http beyond this machine.
    """

    url: str
    account_id: str
    private_key: str = field(repr=False)
    namespace: str = "default"
    relayer_key: str | None = None
    custody: str = "auto"
    allow_insecure: bool = False
    seen_path: Path | None = None
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        check_url(self.url, allow_insecure=self.allow_insecure)
        try:
            account_bytes(self.account_id)
            normalise_namespace(self.namespace)
            if self.relayer_key is not None:
                public_key_bytes(self.relayer_key)
        except Invalid as error:
            raise ConfigError(str(error)) from None
        if self.custody not in CUSTODIES:
            raise ConfigError("Custody is auto, sealed or managed.")
        _check_aliases(self.aliases)
        Identity.from_hex(self.private_key)

    def profile(self) -> dict[str, Any]:
        """Return the members of a profile file of these settings, the private key among them."""
        values = {name: getattr(self, name) for name in VARIABLES}
        return values | ({"aliases": dict(self.aliases)} if self.aliases else {})

    @property
    def identity(self) -> Identity:
        """The identity that signs."""
        return Identity.from_hex(self.private_key)

    @property
    def public_key(self) -> str:
        """The public key, in hex."""
        return self.identity.public_key.hex()

    @property
    def masked_key(self) -> str:
        """The public key, shortened for people."""
        return mask_key(self.public_key)

    @classmethod
    def load(
        cls,
        profile: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        **overrides: str | None,
    ) -> "Settings":
        """Return the settings of the environment, completed by the profile.

        Raises:
            ConfigError: something is missing, malformed or readable by others.
        """
        environ = os.environ if environ is None else environ
        path = profile_path(profile, environ)
        values = read_profile(path, missing_ok=not is_named(profile, environ))
        found = bool(values)
        values |= {name: environ[var] for name, var in VARIABLES.items() if environ.get(var)}
        values |= {name: value for name, value in overrides.items() if value is not None}
        for name in ("url", "account_id", "private_key"):
            if not values:
                raise ConfigError(
                    f"There is no memory yet: there is no profile at {path}. For a memory on this"
                    " machine type `memrelay init --local`; at a relayer elsewhere, `memrelay init"
                    " URL`."
                )
            if not values.get(name):
                raise ConfigError(
                    f"Set {VARIABLES[name]}, or make a profile: type `memrelay init URL`, or"
                    " `memrelay init --local` for a relayer on this machine."
                )
        for name in _TEXTS:
            if not isinstance(values.get(name, ""), str):
                raise ConfigError(f"In the profile {path}, {name} is a text.")
        values["allow_insecure"] = parse_switch(values.get("allow_insecure", False))
        settings = cls(**values)
        seen = trust_store_path(path, settings.account_id)
        kept = found or _is_writable(seen.parent)
        return replace(settings, seen_path=seen) if kept else settings


class Unconnectable(ConfigError):
    """A setting of the environment for proxies or certificates is of no use."""


@contextmanager
def explain_connection_settings() -> Iterator[None]:
    """Name what the environment says of proxies and certificates where httpx cannot use it.

    Raises:
        Unconnectable: it cannot; no proxy's address is told, which may hold a password.
    """
    try:
        yield
    except ImportError as error:
        extra = 'pip install "httpx[socks]"'
        raise Unconnectable(f"{_proxy()} is a SOCKS proxy, which needs: {extra}") from error
    except (ValueError, httpx.InvalidURL) as error:
        raise Unconnectable(f"{_proxy()} is no http, https or socks5 address.") from error
    except OSError as error:
        named = next((name for name in _CERTIFICATES if os.environ.get(name)), None)
        source = f"{os.environ[named]}, which {named} names," if named else "This machine"
        reason = error.strerror or type(error).__name__
        raise Unconnectable(f"{source} has no certificates of authorities: {reason}.") from error


def _proxy() -> str:
    known = os.environ.items()
    proxies = {name: value for name, value in known if name.lower() in _PROXIES and value}
    # What httpx can use by itself is not what it complained about.
    odd = [name for name, value in proxies.items() if not value.startswith(("http://", "https://"))]
    return f"What {' or '.join(odd or proxies or ['the system'])} names as a proxy"


def _check_aliases(aliases: object) -> None:
    if (
        not isinstance(aliases, Mapping)
        or len(aliases) > ALIASES_MAX
        or not all(_is_alias(name) and _are_aliases(others) for name, others in aliases.items())
    ):
        raise ConfigError(
            f"aliases gives up to {ALIASES_MAX} words a list of 1 to {ALIAS_WORDS_MAX} other "
            f"words, each of 1 to {ALIAS_CHARACTERS_MAX} whole characters."
        )


def _is_alias(text: object) -> bool:
    if not isinstance(text, str) or not 1 <= len(text) <= ALIAS_CHARACTERS_MAX:
        return False
    # JSON can hold half of a character, which no request could carry.
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _are_aliases(others: object) -> bool:
    if not isinstance(others, list | tuple) or not 1 <= len(others) <= ALIAS_WORDS_MAX:
        return False
    return all(_is_alias(other) for other in others)


def _is_writable(folder: Path) -> bool:
    """Return whether the folder can be written, or made where it is missing."""
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def parse_switch(value: object) -> bool:
    """Return if `allow_insecure` of a profile, or its variable, is on.

    Raises:
        ConfigError: it is neither on nor off.
    """
    # Not sets: a profile may hold a list here.
    if value in (True, "1", "true", "yes"):
        return True
    if value in (False, "0", "false", "no"):
        return False
    raise ConfigError("MEMRELAY_ALLOW_INSECURE, or allow_insecure in the profile, is 1 or 0.")


def check_url(url: str, *, allow_insecure: bool = False) -> httpx.URL:
    """Return a relayer's URL, or what is asked through the socket that it names.

    Raises:
        ConfigError: it is no http(s) URL nor a socket's, or plain http beyond this machine.
    """
    if parse_socket(url) is not None:
        return httpx.URL(BASE_URL)
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")  # as whoever connects does
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError("The relayer's URL is malformed.") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError("The relayer's URL begins with https:// or http://.")
    if parsed.query or parsed.fragment or parsed.userinfo:
        raise ConfigError("The relayer's URL has no query, fragment or password.")
    if parsed.scheme == "http" and not (allow_insecure or is_loopback(parsed.host)):
        raise ConfigError(
            "Plain http would carry your memories readably: use https. Where it is what you want,"
            " MEMRELAY_ALLOW_INSECURE=1 allows it."
        )
    return parsed


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def certificates_for(url: httpx.URL) -> ssl.SSLContext | bool:
    """Return whose certificates a connection believes, as httpx takes it for `verify`.

    They are those of `SSL_CERT_FILE` or `SSL_CERT_DIR`, else those that httpx brings along.

    Raises:
        OSError: a variable names what has none.
    """
    if url.scheme == "https":
        # httpx reads the variables only where it takes a proxy from the environment, too.
        return httpx.create_ssl_context()
    # Without TLS nobody is verified, and reading all authorities takes longer than a request.
    return not is_loopback(url.host)


def is_named(profile: str | Path | None, environ: Mapping[str, str]) -> bool:
    """Return if somebody named the profile, so that it has to be there."""
    return bool(profile or environ.get("MEMRELAY_PROFILE"))


def profile_path(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the profile's path: the argument, MEMRELAY_PROFILE, or the user's own folder.

    Raises:
        ConfigError: it is a folder's, or in a home that is not known.
    """
    chosen = profile or environ.get("MEMRELAY_PROFILE")
    if chosen:
        path = expand_home(chosen)
        if not path.name:
            raise ConfigError(f"{chosen} is no file of a profile.")
        return path
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return expand_home(base) / "memrelay" / "profile.json"


def expand_home(path: str | Path) -> Path:
    """Return a path with the home folder for its `~`.

    Raises:
        ConfigError: nobody knows whose home that is, or where.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: this home folder is not known; give the whole path.") from None


def trust_store_path(profile: Path, account_id: str) -> Path:
    """Return the path of what a profile's clients have verified of an account."""
    return profile.with_name(f"{profile.stem}.{account_id[2:18]}.seen.json")


def agent_name(text: str) -> str:
    """Return an agent's name in its one spelling, which is also that of its files.

    Raises:
        ConfigError: it is not 1 to 64 of a–z, 0–9, _ and -, beginning with a letter or digit.
    """
    name = text.lower()
    if not _AGENT_NAME.fullmatch(name):
        raise ConfigError(
            "An agent's name is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit."
        )
    return name


def agents_folder(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of the agents' own profiles, beside the owner's."""
    return profile_path(profile, environ).parent / "agents"


def spool_folder(profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the folder of the captured turns that wait for the relayer, beside the profile."""
    return profile_path(profile, environ).parent / "spool"


def agent_path(name: str, profile: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Return the path of an agent's own profile.

    Raises:
        ConfigError: the name is malformed.
    """
    return agents_folder(profile, environ) / f"{agent_name(name)}.json"


def agent_paths(profile: str | Path | None, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the agents' own profiles that exist beside the owner's, by name."""
    return agent_paths_in(agents_folder(profile, environ))


def agent_paths_in(folder: Path) -> dict[str, Path]:
    """Return the agents' own profiles in a folder, by name."""
    # What their clients have seen lies there too, under names with dots in them.
    paths = sorted(folder.glob("*.json"))
    return {path.stem: path for path in paths if _AGENT_NAME.fullmatch(path.stem)}


def read_profile(path: Path, *, missing_ok: bool) -> dict[str, Any]:
    """Return the members of a profile (JSON, or TOML by its suffix); empty when there is none.

    Raises:
        ConfigError: it is missing, malformed, not the user's own or readable by others.
    """
    data = read_private(path)
    if data is None:
        if missing_ok:
            return {}
        raise ConfigError(f"There is no profile at {path}; make one with `memrelay init`.")
    try:
        text = data.decode()
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError):
        # The parser's own message could quote the private key.
        raise ConfigError(f"The profile {path} is malformed.") from None
    unknown = set(values) - _PROFILE_MEMBERS if isinstance(values, dict) else {"(no object)"}
    if unknown:
        raise ConfigError(f"The profile {path} has unknown members: {', '.join(sorted(unknown))}.")
    return dict(values)
