"""The command join: a key that is made here, its request, and the profile once it was let in.

It does not own what the key is granted (`admission.py`), or a request's form
(`sealed/join_request.py`).

- The private key is made here and stays here: in a file beside the profile until that is made.
- The account that let the key in is compared with what its owner said. Whoever has a request, the
  relayer's operator among them, could let its key into an account of their own.
"""

import json
import sys
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memrelay.answers import rfc3339
from memrelay.commands.key_choice import describe_grants
from memrelay.commands.new_keys import (
    default_label,
    hand_over,
    keep_old,
    new_profile,
    put_in_place,
)
from memrelay.commands.parsers import Adder, number_of, parse_nonempty
from memrelay.commands.qr_code import find_library, is_picture, save_code, show_code
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import Settings, expand_home, profile_path, read_profile, spool_folder
from memrelay.errors import ConfigError, MemrelayError, NotAuthenticated, NotGranted
from memrelay.exchange import LONG_ANSWER_BYTES_MAX, Operation
from memrelay.local_time import when
from memrelay.sealed.grants import Grant, NamespaceScope, read_grant
from memrelay.sealed.join_request import make_fingerprint, write_request
from memrelay.sealed.keys import Identity, account_bytes, account_id_of, account_text, mask_key
from memrelay.sealed.ledger import Ledger
from memrelay.secure_files import read_private, write_private, write_private_text
from memrelay.session import Call, Grants, parse_bytes
from memrelay.signing import RequestSigner
from memrelay.sync_connection import SyncConnection

_DAYS = 7.0  # that a request holds, unless it is said


def register(add: Adder) -> None:
    """Add the command."""
    _add_join(add("join", join, agent=False))


def _add_join(parser: ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", help="the relayer (else MEMRELAY_URL)")
    parser.add_argument("--finish", action="store_true", help="make the profile: I was let in")
    parser.add_argument("--account", metavar="0X…", help="let in by this account alone")
    parser.add_argument("--label", help="a name for the key, an agent's for `agents enrol`")
    parser.add_argument(
        "--days",
        type=number_of(timedelta(days=1), 0, 366, above=True),
        default=_DAYS,
        help=f"that the request holds ({_DAYS:g})",
    )
    parser.add_argument(
        "--out",
        type=parse_nonempty,
        metavar="PATH",
        help="write the request there; to .svg or .png, as a QR code",
    )
    parser.add_argument("--qr", action="store_true", help="show the request as a QR code, too")
    parser.add_argument("--relayer-key", metavar="HEX", help="insist on this relayer")
    parser.add_argument("--allow-insecure", action="store_true", help="plain http beyond here")
    parser.add_argument("--force", action="store_true", help="another key than the one that waits")
    parser.add_argument(
        "--replace", action="store_true", help="a new key for the profile that is here"
    )
    parser.add_argument("--yes", action="store_true", help="with --finish: whichever account it is")


def join(shell: Shell) -> None:
    """Make a key here, and ask to be let into somebody's account."""
    if shell.args.account is not None:
        account_bytes(shell.args.account)
    path = profile_path(shell.args.profile, shell.environ)
    if shell.args.finish:
        return _finish(shell, path)
    if path.exists() and not shell.args.replace:
        raise ConfigError(
            f"{path} exists: there is a memory already. --profile FILE keeps another beside it;"
            " --replace makes a new key for this one."
        )
    out = expand_home(shell.args.out) if shell.args.out else None
    is_drawn = out is not None and is_picture(out.name)
    if shell.args.qr or is_drawn:
        find_library()  # before there is a key
    with new_profile(path, replaces=shell.args.replace or None):  # nobody else makes one meanwhile
        values = _begin(shell, path)
    now = datetime.now(UTC).replace(microsecond=0)
    ends = now + timedelta(days=shell.args.days)
    identity = Identity.from_hex(values["private_key"])
    account = values["account_id"]
    request = write_request(
        identity,
        relayer=bytes.fromhex(values["relayer_key"]),
        account=None if account is None else account_bytes(account),
        created_ms=int(now.timestamp() * 1000),
        expires_ms=int(ends.timestamp() * 1000),
        label=values["label"],
    )
    fingerprint = make_fingerprint(identity.public_key)
    if out is not None and is_drawn:
        save_code(request, out)
    elif out is not None:
        write_private_text(out, request + "\n")
    shown = {
        "request": request,
        "public_key": identity.public_key.hex(),
        "fingerprint": fingerprint,
        "relayer_key": values["relayer_key"],
        "label": values["label"],
        "expires_at": rfc3339(ends),
        "waiting": str(_waiting_path(path)),
    }
    shell.show(shown, [f"written to {shell.args.out}" if shell.args.out else request])
    if shell.args.qr:
        show_code(request, otherwise="save it: `memrelay join --out request.svg`")
    warn(f"fingerprint {fingerprint}; the request holds until {when(ends)}")
    warn(f"the relayer's key is {mask_key(values['relayer_key'])}")
    warn("Send it to the account's owner, who types `memrelay keys admit` with it.")
    warn("Then type `memrelay join --finish` with the account that the owner names.")


def _waiting_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.joining")


def _begin(shell: Shell, path: Path) -> dict[str, Any]:
    """Return the key that waits to be let in, or a new one; it is on disk by then."""
    args, waiting = shell.args, _waiting_path(path)
    values = None if args.force else _read_waiting(waiting)
    url = args.url or shell.environ.get("MEMRELAY_URL")
    if values is None:
        own = _read_replaced(path) if args.replace else None
        url = url or (own and own.url)
        if not url:
            raise ConfigError("Name the relayer: `memrelay join URL`, or set MEMRELAY_URL.")
        values = {
            "url": url,
            "private_key": Identity.generate().seed_hex(),
            "relayer_key": args.relayer_key or (own and own.relayer_key),
            "allow_insecure": args.allow_insecure or (own is not None and own.allow_insecure),
            "namespace": own and own.namespace,
            "account_id": own and own.account_id,
            "label": _label_of(own),
            "replaces": own and own.public_key,
        }
    elif args.replace and values["replaces"] is None:
        raise ConfigError(f"A key in {waiting} waits that replaces none; --force makes another.")
    elif args.url and args.url != values["url"]:
        raise ConfigError(
            f"A key in {waiting} waits to be let in at {values['url']}; --force makes another."
        )
    given = {"label": args.label, "account_id": args.account, "namespace": args.namespace}
    values |= {name: value for name, value in given.items() if value is not None}
    with Newcomer.of(values) as connection:
        relayer = connection.run(connection.session.statement()).relayer
    values["relayer_key"] = relayer.hex()
    if args.force:
        keep_old(waiting)  # that key may have been let in by now
    write_private(waiting, values)
    return values


def _read_replaced(path: Path) -> Settings:
    """Return the settings of the profile whose key is to be replaced.

    Raises:
        ConfigError: there is none.
    """
    try:
        return Settings(**read_profile(path, missing_ok=False))
    except TypeError:
        raise ConfigError(f"{path} is no whole profile.") from None


def _label_of(own: Settings | None) -> str:
    """Return the name of a new key: an agent's is that of its namespace."""
    return default_label() if own is None or own.namespace == "default" else own.namespace


def _read_waiting(path: Path) -> dict[str, Any] | None:
    data = read_private(path)
    if data is None:
        return None
    try:
        values = json.loads(data)
        names = {"url", "private_key", "relayer_key", "allow_insecure", "namespace"}
        if set(values) == names | {"account_id", "label", "replaces"}:
            return dict(values)
    except (ValueError, TypeError):
        pass  # The parser's own message could quote the private key.
    raise ConfigError(f"{path} is damaged; remove it and begin anew.")


class Newcomer(SyncConnection):
    """A connection of a key that does not know yet which account it is in."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Newcomer":
        """Return the connection of a key that waits."""
        identity = Identity.from_hex(values["private_key"])
        settings = Settings(
            url=values["url"],
            private_key=values["private_key"],
            account_id=account_text(account_id_of(identity.public_key)),  # it founds none
            relayer_key=values["relayer_key"],
            allow_insecure=values["allow_insecure"],
        )
        connection = cls.from_settings(settings)
        prefix = connection._url.raw_path.decode("ascii").rstrip("/")
        connection._signer = RequestSigner(identity, path_prefix=prefix)
        return connection

    def find_account(self) -> tuple[str, list[Grant]]:
        """Return the account that let this key in, and what it holds, verified to the founder.

        Raises:
            NotAuthenticated: the relayer knows no account that did.
            UntrustedGrant: the grants do not lead to a founder.
            NotGranted: it holds nothing, or nothing any more.
        """
        return self.run(self._find_account())

    def _find_account(self) -> Operation[tuple[str, list[Grant]]]:
        session = self.session
        yield from session.statement()  # another relayer's word counts for nothing
        answer = Grants.from_json(
            (
                yield from session.call(
                    Call(method="GET", path="/v1/grants", answer_bytes_max=LONG_ANSWER_BYTES_MAX)
                )
            )
        )
        objects = [(entry.kind, entry.grant_bytes) for entry in answer.grants]
        own = session.identity.public_key
        grants = [read_grant(data) for kind, data in objects if kind == "grant"]
        account = next((grant.account for grant in grants if grant.recipient == own), None)
        if account is None:
            raise NotGranted("The relayer shows no grant to this key.")
        succession = [parse_bytes(text, "successor") for text in answer.succession or ()]
        ledger = Ledger.of(account_bytes(account), objects, succession)
        held = ledger.list_grants_to(own, session.now_ms())
        if not held:
            raise NotGranted("This key holds nothing any more: its grants ended or were revoked.")
        ledger.keyring(session.identity, session.now_ms())  # what the boxes hold is what they say
        return account, held


def _finish(shell: Shell, path: Path) -> None:
    waiting = _waiting_path(path)
    values = _read_waiting(waiting)
    if values is None:
        there = f"{path} is there already" if path.exists() else "`memrelay join URL` begins"
        raise ConfigError(f"No key waits in {waiting}: {there}.")
    fingerprint = make_fingerprint(Identity.from_hex(values["private_key"]).public_key)
    if _is_finished(path, values):
        waiting.unlink(missing_ok=True)
        return shell.show({"profile": str(path)}, [f"profile   {path} was made before"])
    with Newcomer.of(values) as connection:
        try:
            account, held = connection.find_account()
        except NotAuthenticated:
            raise NotGranted(
                f"Nobody has let the key {fingerprint} in yet; `memrelay join` prints its request."
                " If somebody did, compare the clocks of this machine and the relayer."
            ) from None
    _check_account(shell, values, account, held)
    namespace = _choose_namespace(shell, values, held)
    settings = replace(connection.settings, account_id=account, namespace=namespace, seen_path=None)
    old = _find_replaced(path, values)
    if old is not None:
        settings = replace(settings, aliases=old.aliases)
    with new_profile(path, replaces=old is not None or None) as pending:
        write_private(pending, settings.profile())
        put_in_place(pending, path)
    if old is not None:
        hand_over({spool_folder(path, shell.environ)}, old.identity, settings.identity)
    waiting.unlink(missing_ok=True)
    shown = {
        "account_id": account,
        "public_key": settings.public_key,
        "namespace": namespace,
        "holds": describe_grants(held),
        "profile": str(path),
    }
    lines = [
        f"account   {account}",
        f"key       {settings.masked_key}, {describe_grants(held)}",
        f"namespace {namespace}",
        f"profile   {path}: the only copy of the private key",
    ]
    shell.show(shown, lines)


def _find_replaced(path: Path, values: dict[str, Any]) -> Settings | None:
    """Return the settings of the profile that a waiting key replaces, None if it replaces none.

    Raises:
        ConfigError: the profile has another key by now.
    """
    if values["replaces"] is None or not path.exists():
        return None
    own = _read_replaced(path)
    if own.public_key != values["replaces"]:
        raise ConfigError(f"{path} has another key by now than the one that was to be replaced.")
    return own


def _is_finished(path: Path, values: dict[str, Any]) -> bool:
    """Return whether a profile has the waiting key: only the last step was missed."""
    with suppress(ConfigError):
        found = read_profile(path, missing_ok=True)
        return bool(found.get("private_key") == values["private_key"])
    return False


def _check_account(shell: Shell, values: dict[str, Any], account: str, held: list[Grant]) -> None:
    """Return if the account is the one that was named, or that a person agrees to.

    Raises:
        MemrelayError: it is another; the answer is no.
        ConfigError: none was named, and nobody is there to ask.
    """
    wanted = shell.args.account or values["account_id"]
    if wanted is not None:
        if wanted != account:
            raise MemrelayError(
                f"Another account than {wanted} let this key in: {account}. Do not use that key:"
                " who let it in would read what you store. `memrelay join URL --force` makes"
                " another."
            )
        return
    issuer = make_fingerprint(held[0].issuer)
    warn(f"let in by {account}, through the key {issuer}: {describe_grants(held)}")
    if shell.args.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "Give the account that its owner named, `--account 0x…`, or --yes: who let this key in"
            " reads what you store."
        )
    shell.confirm("Is that the account that its owner named?", otherwise="No profile was made.")


def _choose_namespace(shell: Shell, values: dict[str, Any], held: list[Grant]) -> str:
    """Return the namespace of the profile: the chosen one, the label's, or the first granted."""
    chosen: str | None = shell.args.namespace or values["namespace"]
    if any(grant.whole_account for grant in held):
        return chosen or "default"
    names = [
        entry.namespace
        for grant in held
        for entry in grant.scope
        if isinstance(entry, NamespaceScope)
    ]
    if chosen is not None and chosen not in names:
        raise ConfigError(
            f"This key holds {', '.join(dict.fromkeys(names))}, not {chosen}: "
            "choose one of them with --namespace."
        )
    # `main` is the agent of the default namespace.
    return chosen or next((n for n in (values["label"], "default") if n in names), names[0])
