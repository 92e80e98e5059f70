"""Moves an account from one relayer to another, as its owner; free of I/O.

It does not own the archive in between (`archive_writer.py`, `sealed/archive.py`).

- None of it sends a namespace's key: what moves stays sealed, and neither relayer learns to read.

Source: SPEC.md §17.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from memrelay.answers import Answer, onward
from memrelay.errors import Conflict, NotGranted, UntrustedRelayer
from memrelay.exchange import LONG_ANSWER_BYTES_MAX, Operation
from memrelay.operations.keyholders import Keyholders, ReceiptList
from memrelay.sealed.archive import ChunkKey, new_header
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.keys import Root
from memrelay.sealed.objects import to_base64
from memrelay.sealed.receipts import read_receipt, signer_of
from memrelay.session import Call

IMPORTED = "imported"
RowName = tuple[str, int, str]  # id, revision and blob, as a receipt names them

_OPERATIONS = frozenset({"import", "state", "forget", "grant", "revoke"})


@dataclass(frozen=True, kw_only=True)
class ExportPage(Answer):
    """Records of an account as they lie there; `next` leads to the next page."""

    records: tuple[Mapping[str, Any], ...]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class FoundedAccount(Answer):
    """The account that was founded."""

    account_id: str


@dataclass(frozen=True, kw_only=True)
class RowOutcome(Answer):
    """The outcome of one row that was brought."""

    id: str
    status: str


@dataclass(frozen=True, kw_only=True)
class ImportResult(Answer):
    """The outcome of a page that was brought to a relayer, and the receipts for it."""

    grants: int = 0
    results: tuple[RowOutcome, ...] = ()
    receipts: tuple[str, ...]


@dataclass(frozen=True)
class NewArchive:
    """The signed header of an archive that is begun, and what seals its chunks."""

    header: bytes = field(repr=False)
    chunks: ChunkKey


def new_archive(operations: Keyholders) -> Operation[NewArchive]:
    """Return the beginning of an archive that every owner of the account can open.

    Raises:
        NotGranted: this key does not own the account.
    """
    session = operations.session
    relayer = yield from session.relayer_key()
    ledger = yield from operations.grants()
    held = ledger.holders(session.now_ms())
    owners = sorted(key for key, grants in held.items() if any(g.role == "owner" for g in grants))
    if session.identity.public_key not in owners:
        raise NotGranted("Only an owner's key takes the whole account along.")
    chunks = ChunkKey(uuid4(), Root.generate().key)
    header = new_header(
        session.identity,
        archive=chunks.archive,
        account=session.account,
        relayer=relayer,
        created_ms=session.now_ms(),
        owners=owners,
        key=chunks.key,
    )
    return NewArchive(header, chunks)


def export_page(
    operations: Keyholders, part: str, *, cursor: str = "", ids: Iterable[str] = ()
) -> Operation[tuple[Sequence[Mapping[str, Any]], str | None]]:
    """Return the records of a page of the account, and the cursor of the next one."""
    query: dict[str, Any] = {"part": part}
    query |= {"cursor": cursor} if cursor else {}
    query |= {"ids": list(ids)} if ids else {}
    answer = yield from operations.session.call(
        Call(
            method="GET",
            path="/v1/export",
            query=query,
            repeatable=True,
            answer_bytes_max=LONG_ANSWER_BYTES_MAX,
        )
    )
    page = ExportPage.from_json(answer)
    return page.records, onward(cursor, page.next)


def check_exported(operations: Keyholders, newest: bytes) -> Operation[None]:
    """Check that the relayer stands for the history that was exported, up to its newest receipt.

    Raises:
        UntrustedRelayer: another key signed it, or it is none.
    """
    session = operations.session
    relayer = signer_of(newest, (yield from session.relayers()))
    receipt = read_receipt(newest, relayer=relayer, account=session.account)
    yield from operations.check_newest(receipt)


def found_account(
    operations: Keyholders, *, grant: bytes, label: str, token: str | None = None
) -> Operation[bool]:
    """Found the account at this relayer with the founder's first grant; whether it was not there.

    Raises:
        NotGranted: it is not there, and only its founder's key brings it.
    """
    session = operations.session
    body: dict[str, Any] = {"grants": [to_base64(grant)], "label": label}
    body |= {} if token is None else {"token": token}
    call = Call(method="POST", path="/v1/accounts", body=body, names_relayer=True)
    try:
        answer = yield from session.call(call)
    except Conflict as error:
        if error.code != "account.exists":
            raise
        return False
    if FoundedAccount.from_json(answer).account_id != session.settings.account_id:
        raise UntrustedRelayer("account", "The relayer founded another account than asked.")
    yield from _note(operations, ReceiptList.from_json(answer).receipts or ())
    return True


def import_page(operations: Keyholders, page: Mapping[str, Any]) -> Operation[ImportResult]:
    """Return what the relayer says became of a page of what is brought to it.

    Raises:
        UntrustedRelayer: it says that it took a row or a state in, and no receipt names it.
    """
    answer = yield from operations.session.call(
        Call(
            method="POST",
            path="/v1/import",
            body=dict(page),
            names_relayer=True,
            repeatable=True,
        )
    )
    imported = ImportResult.from_json(answer)
    vouched = yield from _note(operations, imported.receipts)
    _check_vouched(page, imported.results, vouched)
    if page.get("grants"):
        operations.session.forget_grants()
    return imported


def _note(operations: Keyholders, receipts: Iterable[str]) -> Operation[set[RowName]]:
    """Verify the receipts of an import; return what they say was taken in."""
    vouched: set[RowName] = set()
    for text in receipts:
        receipt = yield from operations.session.note_receipt(text, op=_OPERATIONS)
        if receipt.op == "import":
            vouched |= set(receipt.items)
    return vouched


def _check_vouched(
    page: Mapping[str, Any], results: Iterable[RowOutcome], vouched: set[RowName]
) -> None:
    rows = {row["id"]: row for name in ("memories", "episodes") for row in page.get(name, ())}
    decided = {one["id"]: one["revision"] for one in page.get("states", ())}
    named = {(item, revision) for item, revision, _ in vouched}
    for one in results:
        if one.id in rows:
            is_named = _name_row(rows[one.id]) in vouched
        else:
            is_named = (one.id, decided.get(one.id)) in named
        if one.status == IMPORTED and not is_named:
            raise UntrustedRelayer("receipt", "A row that was taken in came without its receipt.")


def _name_row(row: Mapping[str, Any]) -> RowName:
    """Return the name by which a receipt calls a row; a turn has no revisions."""
    item = row.get("revision_of") or row.get("id", "")
    return item, row.get("revision", 1), row.get("blob_id", "")


def give_custody(operations: Keyholders) -> Operation[None]:
    """Make this relayer a custodian of the account: it can read all of it from then on.

    Only its caller's wish leads here, no answer of a relayer.
    """
    session = operations.session
    relayer = yield from session.relayer_key()
    ledger = yield from operations.grants()
    if ledger.is_managed_by(relayer, session.now_ms()):
        return
    keyring = yield from session.keyring()
    grant = issue_grant(
        session.identity,
        account=session.account,
        serial=ledger.serial + 1,
        recipient=relayer,
        role="custodian",
        keys=list(keyring.roots()),
        created_ms=session.now_ms(),
    )
    body = {"grant": to_base64(grant), "join": ""}
    call = Call(method="POST", path="/v1/grants", body=body, names_relayer=True)
    answer = yield from session.call(call)
    receipt = ReceiptList.from_json(answer).receipt
    yield from session.note_receipt(receipt, op="grant", signed=grant)
    session.forget_grants()
