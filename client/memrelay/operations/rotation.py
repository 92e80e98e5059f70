"""Beginning a new epoch of an account, and following its memories there; free of I/O.

It does not own the objects that a rotation sends (`sealed/reissue.py`) or single grants
(`keyholders.py`).

- The new root is made here and leaves only inside signed grants. Once the relayer has those, the
  owner's own one among them keeps it; before, nothing needs it.
- A relayer seals memories anew with keys that are lent for minutes; it never gets a root.

Source: SPEC.md §16.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memrelay.errors import ConfigError, Conflict, NotGranted, UntrustedRelayer
from memrelay.exchange import Operation
from memrelay.models import NamespaceRotation, Rotated, Rotation
from memrelay.operations.keyholders import Keyholders, ReceiptList
from memrelay.operations.reads import to_json_list
from memrelay.sealed.keys import Root, public_key_bytes
from memrelay.sealed.ledger import Keyring, Ledger
from memrelay.sealed.objects import to_base64
from memrelay.sealed.reissue import Reissue, reissue
from memrelay.session import Call, parse_namespace

EPOCHS_MAX = 8  # alive at once: the keys of a namespace have to fit into one unlock header
RESEALS = ("revoked", "all", "none")
_PATH = "/v1/rotations"
_ATTEMPTS_MAX = 3
_LENT_BYTES_MAX = 3_000  # of keys in one unlock header, before it is boxed
_KEY_BYTES = 90  # of one in the header's JSON, beside its namespace

Choice = str | Sequence[str]


class Operations(Keyholders):
    """All operations: those of `Keyholders`, and rotation."""

    def rotate(
        self, *, revoke: Iterable[str] = (), reseal: Choice = "revoked"
    ) -> Operation[Rotated]:
        """Begin a new epoch, without the keys that are revoked with it.

        `reseal` says what is sealed anew: what revoked keys could read (`revoked`), `all`, `none`,
        or these namespaces. When this returns, all that is new is sealed under the new epoch.

        Raises:
            NotGranted: this is no owner's key.
            ConfigError: too many epochs are alive; one has to be left behind first.
        """

        def roots(keyring: Keyring) -> list[Root]:
            alive = keyring.roots()
            if len(alive) >= EPOCHS_MAX:
                raise ConfigError(
                    "Too many epochs are alive; `memrelay rotate --resume --reseal all` ends them."
                )
            return [*alive, Root.generate(keyring.epoch + 1)]

        withdrawn = [
            public_key_bytes(key) for key in dict.fromkeys(to_json_list("revoke", revoke) or ())
        ]
        return (yield from self._rotate(roots, withdrawn, _choice(reseal)))

    def reseal(self, reseal: Choice = "all") -> Operation[None]:
        """Have more sealed anew under the newest epoch, without beginning another."""
        yield from self.session.call(_call({"reseal": _choice(reseal)}))

    def retire_epochs(self) -> Operation[Rotated]:
        """Let everybody's grants go on without the older epochs.

        Raises:
            Conflict: `epoch.in_use`, something is still sealed under one.
        """
        return (yield from self._rotate(lambda keyring: [keyring.roots()[-1]], [], "none"))

    def live_epochs(self) -> Operation[tuple[int, ...]]:
        """Return the epochs whose keys this client still uses, oldest first."""
        keyring = yield from self.session.keyring()
        return tuple(root.epoch for root in keyring.roots())

    def rotation(self, *, lend: bool = False) -> Operation[Rotation]:
        """Return how far memories are under the newest epoch.

        With `lend`, the relayer gets keys to go on with, of as many namespaces as one request
        carries, and keeps them for minutes.
        """
        call = Call(method="GET", path=_PATH, repeatable=True)
        progress = Rotation.from_json((yield from self.session.call(call)))
        if not lend or not progress.remaining or not (yield from self.session.is_sealed()):
            return progress
        keyring = yield from self.session.keyring()
        names = _lendable(progress.namespaces, len(keyring.roots()))
        lending = Call(method="GET", path=_PATH, repeatable=True, unlock=names)
        return Rotation.from_json((yield from self.session.call(lending)))

    def _rotate(
        self, roots: Callable[[Keyring], list[Root]], withdrawn: Sequence[bytes], reseal: Choice
    ) -> Operation[Rotated]:
        """Send a rotation; again when another grant came in between, not when it was accepted."""
        sent: Reissue | None = None
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            self.session.forget_grants()
            keyring = yield from self.session.keyring()
            ledger = yield from self.session.ledger()
            if sent is not None and self._is_accepted(ledger, sent):
                return _make_rotated(sent, withdrawn, ())
            if "owner" not in keyring.roles:
                raise NotGranted("Only an owner's key rotates an account.")
            if not set(withdrawn) <= set(ledger.holders(self.session.now_ms())):
                raise ConfigError("A key that is to be revoked holds nothing any more.")
            sent = reissue(
                ledger,
                self.session.identity,
                account=self.session.account,
                roots=roots(keyring),
                withdrawn=withdrawn,
                relayer=(yield from self.session.statement()).relayer,
                now_ms=self.session.now_ms(),
            )
            try:
                return (yield from self._send(sent, withdrawn, reseal))
            except Conflict as error:
                if attempt == _ATTEMPTS_MAX or error.code != "grant.serial":
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _is_accepted(self, ledger: Ledger, sent: Reissue) -> bool:
        held = ledger.list_grants_to(self.session.identity.public_key, self.session.now_ms())
        return any(grant.grant == sent.own for grant in held)

    def _send(
        self, sent: Reissue, withdrawn: Sequence[bytes], reseal: Choice
    ) -> Operation[Rotated]:
        body = {
            "revocations": [to_base64(data) for data in sent.revocations],
            "grants": [to_base64(data) for data in sent.grants],
            "reseal": reseal,
        }
        answer = yield from self.session.call(_call(body))
        receipts = ReceiptList.from_json(answer).receipts or ()
        objects = [("revoke", data) for data in sent.revocations]
        objects += [("grant", data) for data in sent.grants]
        if len(receipts) != len(objects):
            raise UntrustedRelayer("receipt", "A rotation came without all of its receipts.")
        for receipt, (op, signed) in zip(receipts, objects, strict=True):
            yield from self.session.note_receipt(receipt, op=op, signed=signed)
        self.session.forget_grants()
        yield from self.session.keyring()  # which keeps the new epoch as seen
        return _make_rotated(sent, withdrawn, receipts)


def _call(body: Mapping[str, Any]) -> Call:
    # Sent twice, it is refused the second time, for its serials.
    return Call(method="POST", path=_PATH, body=body, repeatable=True, names_relayer=True)


def _choice(reseal: Choice) -> Choice:
    if isinstance(reseal, str):
        if reseal not in RESEALS:
            raise ConfigError("What is sealed anew is revoked, all, none or a list of namespaces.")
        return reseal
    return list(reseal)


def _make_rotated(sent: Reissue, withdrawn: Sequence[bytes], receipts: Sequence[str]) -> Rotated:
    return Rotated(
        epoch=sent.epoch,
        serial=sent.serial,
        revoked=tuple(key.hex() for key in withdrawn),
        receipts=tuple(receipts),
    )


def _lendable(namespaces: Iterable[NamespaceRotation], epochs: int) -> list[str]:
    """Return as many names of namespaces with work left as fit into one header, one at least.

    Those that wait for keys come first.
    """
    names: list[str] = []
    room = _LENT_BYTES_MAX
    for entry in sorted(namespaces, key=lambda entry: not entry.waiting_for_keys):
        room -= epochs * (_KEY_BYTES + len(json.dumps(entry.name, ensure_ascii=False).encode()))
        if entry.remaining and (room >= 0 or not names):
            names.append(parse_namespace(entry.name))
    return names
