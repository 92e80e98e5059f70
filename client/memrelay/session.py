"""One client's dealings with one relayer, free of I/O: whom to trust, and which keys to send.

It does not own repetitions (`exchange.py`) or what the routes mean (`operations/`).

- A relayer's statement, grants and receipts count only once verified; nothing already seen is
  taken back.
- A sealed account's keys go out in the unlock header only, for the request's namespaces only. A
  relayer can talk this client into sealing more, never into sealing less.

Source: SPEC.md §4, §5, §6.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from memrelay.answers import Answer, make_malformed_error
from memrelay.config import Settings
from memrelay.errors import (
    BadRequest,
    ConfigError,
    Invalid,
    Misdirected,
    NotAllowed,
    NotGranted,
    ServerError,
    UntrustedGrant,
    UntrustedRelayer,
)
from memrelay.exchange import (
    ANSWER_BYTES_MAX,
    ATTEMPTS_MAX,
    LONG_ANSWER_BYTES_MAX,
    Exchange,
    Keep,
    Operation,
    Repeating,
    Send,
    Wake,
)
from memrelay.models import Account
from memrelay.sealed.envelope import blob_id
from memrelay.sealed.keys import account_bytes, normalise_namespace, public_key_bytes
from memrelay.sealed.ledger import Keyring, Ledger
from memrelay.sealed.objects import from_base64, to_base64
from memrelay.sealed.receipts import NO_HEAD, Heads, Receipt, RequestState, read_receipt
from memrelay.sealed.statement import (
    Statement,
    read_named,
    read_signer,
    read_statement,
    read_succession,
)
from memrelay.sealed.unlock import REUSE_MS_MAX, Unlock, build_unlock
from memrelay.trust_store import TrustStore

log = logging.getLogger("memrelay")

GRANTS_AGE_MS_MAX = 600_000
_HEADERS_MAX = 64
_SAVE_EVERY_S = 5.0
_SAVE_SERIALS_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request of the API.

    `repeatable` says that a second one does no harm. A list in `query` is a repeated parameter.
    `unlock` are the namespaces whose keys it needs, None for none. `names_relayer` puts the
    relayer's key in the body, or the query. `answer_bytes_max` is more where an answer may be long.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    repeatable: bool = False
    unlock: Iterable[str] | None = None
    names_relayer: bool = False
    signed: bool = True
    answer_bytes_max: int = ANSWER_BYTES_MAX


@dataclass(frozen=True, kw_only=True)
class SignedGrant(Answer):
    """A grant or a revocation, as it was signed."""

    kind: str
    serial: int
    object: str

    @property
    def grant_bytes(self) -> bytes:
        """Its bytes.

        Raises:
            UntrustedRelayer: they are not in base64.
        """
        return parse_bytes(self.object, "grant")


@dataclass(frozen=True, kw_only=True)
class Grants(Answer):
    """All grants that a key may see, and the account's highest serial."""

    grants: tuple[SignedGrant, ...]
    grant_serial: int
    succession: tuple[str, ...] | None = None  # an older relayer has none


@dataclass(frozen=True, kw_only=True)
class Introduction(Answer):
    """The statement of a relayer, and the `relayer-next` objects that led to its key."""

    statement: str
    succession: tuple[str, ...] | None = None


def parse_bytes(text: str | None, what: str) -> bytes:
    """Return bytes that an answer holds in base64.

    Raises:
        ServerError: `answer.malformed`, when it is not there.
        UntrustedRelayer: `base64`, when it holds something else.
    """
    if text is None:
        raise make_malformed_error(what)
    try:
        return from_base64(text, what)
    except Invalid as error:
        raise UntrustedRelayer(error.code, str(error)) from error


def parse_namespace(name: str) -> str:
    """Return a namespace that an answer names.

    Raises:
        UntrustedRelayer: `namespace`, when nothing can have this name.
    """
    try:
        return normalise_namespace(name)
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"The relayer: {error}") from error


class Session:
    """The state of one client about its relayer and account, and the way it asks."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_s: float = 30.0,
        deadline_s: float = 60.0,
        hold_s: int = 300,
        attempts_max: int = ATTEMPTS_MAX,
        repeating: Repeating | None = None,
        wake: Wake | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.identity = settings.identity
        self.account = account_bytes(settings.account_id)
        self._seen = TrustStore(settings.seen_path)
        self._exchange = Exchange(
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            monotonic=monotonic,
            attempts_max=attempts_max,
            relayer=settings.url,
            repeating=repeating,
            wake=wake,
        )
        self._hold_s = hold_s
        self._clock = clock
        self.monotonic = monotonic
        self._saved_s = (
            monotonic() - _SAVE_SERIALS_EVERY_S
        )  # a first change of keys is saved at once
        self._unsaved = self._due = False
        self._statement: Statement | None = None
        self._succession: tuple[bytes, ...] = ()
        self._keys: tuple[bytes, ...] = ()
        self._told: tuple[bytes, ...] = ()  # the keys that led to it, as the relayer says
        self._ledger: Ledger | None = None
        self._keyring: Keyring | None = None
        self._loaded_ms = 0
        self._managed = False
        self._headers: dict[frozenset[str], tuple[int, str]] = {}
        known = self._seen.value
        self._heads = Heads(known.receipt_seq, bytes.fromhex(known.receipt_head) or NO_HEAD)

    @property
    def trust_store(self) -> TrustStore:
        """The file of what was verified so far."""
        return self._seen

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        return int(self._clock() * 1000)

    # Asking

    def call(self, call: Call) -> Operation[Any]:
        """Return the JSON that the relayer answers.

        Raises:
            ServerError: it refused; TransportError: it was not reached; Invalid: it lied.
        """
        if not call.names_relayer:
            return (yield from self._ask(call, None))
        relayer = yield from self.relayer_key()
        try:
            return (yield from self._ask(call, relayer))
        except BadRequest as error:
            if error.code != "relayer.other":
                raise
            # It refused without an effect. Perhaps it has a new key, named by the pinned one.
            self._statement = None
            following = (yield from self.statement()).relayer
            if following == relayer:
                raise
        return (yield from self._ask(call, following))

    def _ask(self, call: Call, relayer: bytes | None) -> Operation[Any]:
        body, query = call.body, dict(call.query)
        if relayer is not None:
            named = {"relayer": relayer.hex()}
            if body is None:
                query |= named
            else:
                body = {**body, **named}
        target = f"{call.path}?{urlencode(query, doseq=True)}" if query else call.path
        send = Send(
            call.method,
            target,
            _encode(body),
            signed=call.signed,
            answer_bytes_max=call.answer_bytes_max,
        )
        if call.unlock is None:
            return (yield from self._exchange.run(send, call.repeatable))
        return (yield from self._send_unlocked(send, call.repeatable, frozenset(call.unlock)))

    def _send_unlocked(self, send: Send, repeatable: bool, names: frozenset[str]) -> Operation[Any]:
        for retry in (True, False):
            headers = yield from self._unlock_headers(names)
            try:
                return (yield from self._exchange.run(replace(send, headers=headers), repeatable))
            except (Misdirected, NotAllowed) as error:
                if not (retry and self._may_recover(error, bool(headers))):
                    raise _explain(error, bool(headers)) from error
            yield from self._save_when_due()
        raise AssertionError("the second attempt returns or raises")

    def _may_recover(self, error: ServerError, unlocked: bool) -> bool:
        """Forget what the relayer no longer accepts; return whether another attempt may help."""
        if error.code in {"unlock_key_unknown", "unlock_rejected", "epoch.outdated"}:
            self.forget_grants()
            self._statement = None
            return True
        if error.code == "unlock_required" and not unlocked and self.settings.custody == "auto":
            self._remember_sealed()
            return True
        return False

    # Trust

    def relayer_key(self) -> Operation[bytes]:
        """Return the pinned relayer's public key; at first contact, the one that answers."""
        pinned = self.find_pin()
        if pinned is None:
            return (yield from self.statement()).relayer
        return pinned

    def find_pin(self) -> bytes | None:
        """Return the relayer key that this client insists on, if it has one yet.

        It is the one that was pinned, or what that one's successors led to.
        """
        text = self.settings.relayer_key or self._seen.value.relayer_key
        if text is None:
            return None
        pinned = public_key_bytes(text)
        keys = self._keys_seen()
        return keys[-1] if pinned in keys else pinned

    def _keys_seen(self) -> tuple[bytes, ...]:
        """The relayer's keys as far as they were seen, oldest first."""
        objects = tuple(from_base64(text, "successor") for text in self._seen.value.succession)
        if self._succession != objects:
            last = read_named(objects[-1])[1]
            self._succession, self._keys = objects, read_succession(objects, last=last)
        return self._keys

    def relayers(self) -> Operation[tuple[bytes, ...]]:
        """Return every key that the relayer has had, oldest first: receipts are signed by these.

        Whoever answers may put any key before the pinned one: what an earlier key signed counts
        only as far as one of `heirs` vouches for it.
        """
        statement = yield from self.statement()
        return self._told or (statement.relayer,)

    def heirs(self) -> Operation[tuple[bytes, ...]]:
        """Return the pinned key and those that it led to, oldest first."""
        return self._heirs((yield from self.relayers()))

    def _heirs(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The keys that are the pinned one or come behind it; today's, which was checked, is."""
        pinned = public_key_bytes(self.settings.relayer_key or self._seen.value.relayer_key)
        seen = self._keys_seen()
        known = {pinned, *(seen[seen.index(pinned) :] if pinned in seen else ())}
        first = next((at for at, key in enumerate(keys) if key in known), len(keys) - 1)
        return keys[first:]

    def statement(self) -> Operation[Statement]:
        """Return the relayer's statement, at most 10 minutes old.

        Raises:
            UntrustedRelayer: it is another relayer's, stale or false.
        """
        if self._statement is None or not self._statement.is_fresh(self.now_ms()):
            send = Send("GET", "/v1/relayer", signed=False)
            answer = Introduction.from_json((yield from self._exchange.run(send, True)))
            data = parse_bytes(answer.statement, "statement")
            succession = _succession(answer)
            pinned, named = self.find_pin(), read_signer(data)
            keys = read_succession(succession, last=named)
            expected = named if pinned in keys else pinned
            statement = read_statement(data, pinned=expected, now_ms=self.now_ms())
            self._statement = found = statement
            self._told = keys
            self._headers.clear()
            if pinned is None:
                self._note(relayer_key=statement.relayer.hex())
            # Anybody can name the pinned key as their heir: what stands before it is not kept.
            if heirs := succession[len(keys) - len(self._heirs(keys)) :]:
                self._note(succession=tuple(map(to_base64, heirs)))
            yield from self._save_when_due()
            return found
        return self._statement

    def ledger(self) -> Operation[Ledger]:
        """Return the account's verified grants, at most 10 minutes old."""
        yield from self.keyring()
        assert self._ledger is not None
        return self._ledger

    def keyring(self) -> Operation[Keyring]:
        """Return the keys of this identity.

        Raises:
            UntrustedGrant: the chain does not lead to the founder.
            UntrustedRelayer: `rollback`, when grants seen before are withheld.
        """
        if self._keyring is None or self.now_ms() - self._loaded_ms > GRANTS_AGE_MS_MAX:
            self._seen.refresh()  # another process may have seen more, such as a new epoch
            known = self._seen.value
            send = Send("GET", "/v1/grants", answer_bytes_max=LONG_ANSWER_BYTES_MAX)
            answer = Grants.from_json((yield from self._exchange.run(send, True)))
            objects = [(entry.kind, entry.grant_bytes) for entry in answer.grants]
            ledger = Ledger.of(self.account, objects, _succession(answer))
            keyring = ledger.keyring(self.identity, self.now_ms())
            serial, owner = answer.grant_serial, "owner" in keyring.roles
            withheld = owner and (not ledger.complete or ledger.serial != serial)
            withheld |= ledger.hides_from(self.identity.public_key)
            seen = max(known.grant_serial, known.receipt_serial)
            if withheld or serial < max(seen, ledger.serial):
                raise UntrustedRelayer("rollback", "The relayer withholds grants or revocations.")
            if 0 < keyring.epoch < known.epoch:
                raise UntrustedRelayer("rollback", "The relayer withholds the newest epoch.")
            self._note(grant_serial=ledger.serial, epoch=keyring.epoch)
            yield from self._save_when_due()
            # Last: what forgets them meanwhile must not leave the caller without.
            self._ledger, self._keyring, self._loaded_ms = ledger, keyring, self.now_ms()
            self._headers.clear()
        return self._keyring

    def note_change(self, kind: str, signed: bytes) -> None:
        """Take note of a grant or revocation of this client's that the relayer has accepted.

        Whoever gives keys to many agents would else load all that were given before for each.
        """
        ledger = self._ledger
        if ledger is None:
            return
        try:
            entry = ledger.append(kind, signed)
        except UntrustedGrant:  # the ledger was loaded meanwhile, or is another serial's
            self.forget_grants()
            return
        self._note(grant_serial=ledger.serial)
        if entry.recipient == self.identity.public_key:
            self.forget_grants()  # this key holds something else by that

    def forget_grants(self) -> None:
        """Load the grants again before the next use."""
        self._ledger = self._keyring = None
        self._headers.clear()

    def is_sealed(self) -> Operation[bool]:
        """Return whether requests carry the unlock header."""
        if self.settings.custody != "auto":
            return self.settings.custody == "sealed"
        if self._seen.value.sealed:
            return True
        if not self._managed:
            path = f"/v1/accounts/{self.settings.account_id}"
            account = Account.from_json((yield from self._exchange.run(Send("GET", path), True)))
            if account.custody != "managed":
                self._remember_sealed()
                yield from self._save_when_due()
                return True
            yield from self._check_managed()
            self._managed = True
        return False

    def _check_managed(self) -> Operation[None]:
        keyring = yield from self.keyring()
        ledger = yield from self.ledger()
        if "owner" not in keyring.roles:
            return  # only an owner sees all grants; others have the relayer's word alone
        if ledger.is_managed_by((yield from self.relayer_key()), self.now_ms()):
            return
        successor = (yield from self.statement()).relayer  # the pinned key may have one
        if not ledger.is_managed_by(successor, self.now_ms()):
            raise UntrustedRelayer("custody", "The relayer claims custody that nobody gave it.")

    def _remember_sealed(self) -> None:
        self._managed = False
        self._note(sealed=True)

    # Unlocking

    def _unlock_headers(self, names: frozenset[str]) -> Operation[dict[str, str]]:
        if not (yield from self.is_sealed()):
            return {}
        names = frozenset(map(normalise_namespace, names))
        statement = yield from self.statement()
        yield from self.keyring()  # one loaded anew drops the headers made of the one before
        made_ms, header = self._headers.get(names, (0, ""))
        if abs(self.now_ms() - made_ms) > REUSE_MS_MAX:
            keyring = yield from self._keyring_for(names)
            header = self._build_unlock(statement, keyring, names)
            if len(self._headers) >= _HEADERS_MAX:
                self._headers.clear()
            self._headers[names] = (self.now_ms(), header)
        return {"x-memrelay-unlock": header}

    def _keyring_for(self, names: frozenset[str]) -> Operation[Keyring]:
        keyring = yield from self.keyring()
        try:
            for name in names:
                keyring.namespace_keys(name)
        except NotGranted:
            # A grant may have been added since the last look.
            self.forget_grants()
            keyring = yield from self.keyring()
        return keyring

    def _build_unlock(self, statement: Statement, keyring: Keyring, names: frozenset[str]) -> str:
        now_ms = self.now_ms()
        unlock_keys = statement.live_keys(now_ms)
        if not unlock_keys:
            raise UntrustedRelayer("unlock_key", "The relayer lists no live unlock key.")
        keys = [key for name in sorted(names) for key in keyring.namespace_keys(name)]
        unlock = Unlock(
            relayer=statement.relayer,
            account=self.account,
            sender=self.identity.public_key,
            issued_ms=now_ms,
            hold_s=self._hold_s,
            keys=tuple(keys),
        )
        return build_unlock(self.identity, unlock, unlock_keys)

    # Remembering what was seen

    def note_request(self, namespaces: Iterable[str] | None = None) -> RequestState:
        """Return what is known when a request is about to be sent, for its receipts."""
        names = None if namespaces is None else frozenset(namespaces)
        return RequestState(at_ms=self.now_ms(), epoch=self._seen.value.epoch, namespaces=names)

    def note_receipt(
        self,
        text: str | None,
        *,
        op: str | frozenset[str],
        ids: Iterable[str] = (),
        signed: bytes | None = None,
        asked: RequestState | None = None,
    ) -> Operation[Receipt]:
        """Return a receipt that came with an answer, verified, and keep it if it is the newest.

        `op` is the operation that it may be for, or several; `signed` the object that it is for;
        `asked` what was known before the request.

        Raises:
            UntrustedRelayer: it is false, came with another answer, or is not for this operation,
                these ids, this object and this request.
        """
        relayer = yield from self.relayer_key()
        data = parse_bytes(text, "receipt")
        receipt = read_receipt(data, relayer=relayer, account=self.account)
        recorded = {item[0] for item in receipt.items}
        ops = {op} if isinstance(op, str) else op
        if receipt.actor != self.identity.public_key or receipt.op not in ops:
            raise UntrustedRelayer("receipt", "A receipt is for something else.")
        if not recorded.issuperset(ids):
            raise UntrustedRelayer("receipt", "A receipt leaves something out.")
        # All revocations have one id: only its bytes tell which of them a receipt is for.
        if signed is not None and blob_id(signed) not in {item[2] for item in receipt.items}:
            raise UntrustedRelayer("receipt", "A receipt is for another grant or revocation.")
        if asked is not None:
            asked.check(receipt)
        if not self._heads.take(receipt):
            log.warning("the relayer was set back, or signs two histories: memrelay verify tells")
        self._note(
            receipt_seq=receipt.seq,
            receipt_head=receipt.digest.hex(),
            receipt_serial=receipt.serial,
        )
        yield from self._save_when_due()
        return receipt

    def note_checked(self, seq: int, head: bytes) -> None:
        """Keep how far the chain of receipts was followed."""
        self._note(checked_seq=seq, checked_head=head.hex())
        if self._due:
            self.save()

    def _note(self, **values: Any) -> None:
        before, after = self._seen.note(**values)
        trust = ("relayer_key", "sealed", "epoch", "checked_seq", "succession")
        changed = any(getattr(before, name) != getattr(after, name) for name in trust)
        serial = max(before.receipt_serial, before.grant_serial)
        is_risen = max(after.receipt_serial, after.grant_serial) > serial
        # Receipts come with every write: those are saved now and then, and at the end. So are the
        # serials of whoever gives keys to thousands, but sooner.
        age_s = self.monotonic() - self._saved_s
        self._due |= changed or age_s >= (_SAVE_SERIALS_EVERY_S if is_risen else _SAVE_EVERY_S)

    def _save_when_due(self) -> Operation[None]:
        """Save what was noted, where that is due."""
        if self._due:
            yield Keep(self.save)

    def save(self) -> None:
        """Write what was seen to its file, if it has one; a disk that fails costs no request.

        Raises:
            ConfigError: the file was damaged meanwhile, or others may read it.
        """
        self._due = False
        try:
            self._seen.save()
        except ConfigError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            if not self._unsaved:
                log.warning("what was verified cannot be kept on disk; it counts until the end")
            self._unsaved = True
        self._saved_s = self.monotonic()


def _encode(body: Mapping[str, Any] | None) -> bytes:
    if body is None:
        return b""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _explain(error: ServerError, unlocked: bool) -> ServerError:
    if error.code == "unlock_required":
        hint = (
            "Its keys were sent: a proxy may drop x-memrelay-unlock, or it is another namespace."
            if unlocked
            else "The account is sealed, but this client is set to managed: set custody to sealed."
        )
        return type(error)(
            f"{error.message} {hint}",
            status=error.status,
            code=error.code,
            request_id=error.request_id,
        )
    return error


def _succession(answer: Grants | Introduction) -> tuple[bytes, ...]:
    return tuple(parse_bytes(text, "successor") for text in answer.succession or ())
