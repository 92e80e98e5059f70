"""Checking a relayer from outside: its receipts, its grants, and every blob against both; no I/O.

It does not own what must hold (`verification.py`) or the formats (`sealed/`).

- Everything is fetched anew, and nothing that the relayer says of itself counts as checked.
- An account that changes meanwhile is looked at again, as far as something seemed wrong.

Source: SPEC.md §15.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from memrelay.answers import Answer, onward, read_json_object
from memrelay.errors import (
    Invalid,
    NotAllowed,
    NotGranted,
    ServerError,
    UntrustedGrant,
    UntrustedRelayer,
)
from memrelay.exchange import LONG_ANSWER_BYTES_MAX, Operation
from memrelay.operations.deletion import Deletion
from memrelay.operations.reads import to_json_list
from memrelay.sealed.envelope import Address, blob_id, open_envelope
from memrelay.sealed.keys import account_text, normalise_namespace
from memrelay.sealed.ledger import Keyring
from memrelay.sealed.objects import read_object
from memrelay.sealed.receipts import Checkpoint, History, read_checkpoint, signer_of
from memrelay.session import Call, Grants, parse_bytes
from memrelay.verification import (
    TYPES,
    Finding,
    Item,
    Landmarks,
    Promises,
    StatePromise,
    Verification,
    contradictions,
    distinct,
    judge_blob,
    judge_grants,
    judge_newest,
    judge_state,
)

PAGE = 200
BLOBS_AT_ONCE = 100
BLOB_BYTES_AT_ONCE = 4 * 2**20
PASSES_MAX = 4
CORRUPTED = "store.corrupted"  # the relayer's own word for grants that it no longer believes

Progress = Callable[[str, int], None]


@dataclass
class _Examination:
    """One verification under way: what is known, what was counted, what was found."""

    account: bytes
    relayers: tuple[bytes, ...]
    history: History
    promises: Promises
    landmarks: Landmarks
    keyring: Keyring
    whole: bool  # whether this key sees receipts and grants
    opens: bool
    progress: Progress
    begins: bool = True
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    receipts: int = 0
    grants: int = 0
    blobs: int = 0
    opened: int = 0
    unproven: int = 0
    followed: bool = True  # whether the chain is sound as far as it goes


@dataclass(frozen=True, kw_only=True)
class Inventory(Answer):
    """The stored objects, by name; `next_cursor` leads to the next page."""

    items: tuple[Item, ...]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class Blob(Answer):
    """Stored bytes in base64, or why there are none."""

    blob_id: str
    data: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class SealedScope(Answer):
    """The statement of a sealed record about itself: the namespace that it was sealed for."""

    ns: str


@dataclass(frozen=True, kw_only=True)
class Blobs(Answer):
    """Some of the bytes that were asked for."""

    blobs: tuple[Blob, ...]


class Audit(Deletion):
    """The operations that check a relayer, and all others on memories."""

    def verify(
        self,
        *,
        namespaces: Iterable[str] | None = None,
        checkpoints: Iterable[bytes] = (),
        since: bytes | None = None,
        open_all: bool = False,
        progress: Progress = lambda what, number: None,
    ) -> Operation[Verification]:
        """Check the account's whole history and everything stored against it.

        `namespaces` narrows what is looked at of the stored; `checkpoints` must lie on the chain;
        `since`, a checkpoint, is where the chain is followed from, instead of its beginning.
        `open_all` opens every blob with the keys at hand. `progress` is told what was checked.

        Raises:
            UntrustedRelayer: another relayer answers than the pinned one.
        """
        given = to_json_list("namespaces", namespaces)
        names = None if given is None else sorted(set(map(normalise_namespace, given)))
        self.session.forget_grants()
        exam = yield from self._examination(checkpoints, since, open_all, progress)
        if not (yield from self._load_keys(exam)):
            return self._verification(exam, since, ("receipts", "grants", "blobs"))
        if exam.whole:
            yield from self._follow(exam)
            yield from self._check_end(exam)
            yield from self._check_grants(exam)
        else:
            exam.promises.complete = exam.followed = False
        yield from self._check_stored(exam, names)
        if exam.whole:
            exam.findings += exam.landmarks.check_left(exam.history.seq)
        return self._verification(exam, since, _list_unchecked(exam))

    def _examination(
        self,
        checkpoints: Iterable[bytes],
        since: bytes | None,
        open_all: bool,
        progress: Progress,
    ) -> Operation[_Examination]:
        relayers = yield from self.session.relayers()
        account, seen = self.session.account, self.session.trust_store.value
        findings: list[Finding] = []
        read: list[Checkpoint] = []
        for data in checkpoints:
            try:
                read.append(read_checkpoint(data, relayers=relayers, account=account))
            except UntrustedRelayer as error:
                findings.append(Finding(what="checkpoint", found=str(error)))
        landmarks = Landmarks()
        landmarks.add(seen.receipt_seq, bytes.fromhex(seen.receipt_head), "this client's newest")
        landmarks.add(seen.checked_seq, bytes.fromhex(seen.checked_head), "checked before")
        for one in read:
            landmarks.add(one.seq, one.head, "a checkpoint")
        start = None
        if since is not None:
            start = read_checkpoint(since, relayers=relayers, account=account)
            findings += landmarks.begin(start)
        exam = _Examination(
            account=account,
            relayers=relayers,
            history=_history(relayers, account, start),
            promises=_promises(start),
            landmarks=landmarks,
            keyring=Keyring(account),
            whole=False,
            opens=open_all,
            progress=progress,
            begins=start is None,
        )
        exam.findings = [*findings, *contradictions(read)]
        return exam

    def _load_keys(self, exam: _Examination) -> Operation[bool]:
        """Load what this key holds; return whether the relayer still serves it at all.

        Where the grants are broken, it may say at least what this key may see.
        """
        try:
            exam.keyring = yield from self.session.keyring()
            exam.whole = exam.keyring.whole_account
            return True
        except (UntrustedGrant, UntrustedRelayer) as error:
            exam.findings.append(Finding(what="grants", found=str(error)))
        except ServerError as error:
            if error.code != CORRUPTED:
                raise
            exam.findings.append(Finding(what="grants", found=error.message))
        try:
            yield from self._get("/v1/checkpoint")
            exam.whole = True
        except NotAllowed:
            exam.whole = False
        except ServerError as error:
            if error.code != CORRUPTED:
                raise
            return False
        return True

    # The chain

    def _follow(self, exam: _Examination) -> Operation[None]:
        """Follow the chain to its present end."""
        while exam.followed:
            page = yield from self.receipt_page(exam.history.seq, PAGE)
            for data in page.receipt_bytes:
                if not self._take(exam, data):
                    return
            exam.progress("receipts", exam.receipts)
            if not page.receipts:
                said = (page.seq, page.head)
                found = (exam.history.seq, exam.history.head.hex())
                if said != found:
                    exam.findings.append(
                        Finding(
                            what="head",
                            seq=found[0],
                            expected=f"{said[0]}, {said[1]}",
                            found=f"{found[0]}, {found[1]}",
                        )
                    )
                return

    def _check_end(self, exam: _Examination) -> Operation[None]:
        """The pinned key or an heir of it stands for the chain: anybody can pose as its forerunner,
        with receipts of their own."""
        heirs = yield from self.session.heirs()
        if not exam.followed or exam.history.seq == 0 or exam.history.signer in heirs:
            return
        stands = yield from self.checkpoint()
        if stands.seq > exam.history.seq:
            yield from self._follow(exam)
        end = (exam.history.seq, exam.history.head)
        if exam.history.signer not in heirs and (stands.seq, stands.head) != end:
            expected, found = f"{stands.seq}, {stands.head.hex()}", f"{end[0]}, {end[1].hex()}"
            seq = end[0]
            exam.findings.append(Finding(what="head", seq=seq, expected=expected, found=found))

    def _take(self, exam: _Examination, data: bytes) -> bool:
        """Judge the next receipt; return whether it follows."""
        due = exam.history.seq + 1
        try:
            receipt = exam.history.follow(data)
        except UntrustedRelayer as error:
            expected = "the receipt that follows, signed by the relayer"
            exam.findings.append(
                Finding(what="chain", seq=due, expected=expected, found=str(error))
            )
            exam.followed = exam.promises.complete = False
            return False
        if receipt.op == "rebuild":
            exam.notes.append(
                f"The relayer rebuilt this account at {receipt.seq}: what was before is not proven."
            )
        exam.findings += exam.landmarks.pass_by(receipt, begins=exam.begins)
        exam.findings += exam.promises.add(receipt)
        exam.begins = False
        exam.receipts += 1
        return True

    def _check_grants(self, exam: _Examination) -> Operation[None]:
        """Grants and revocations, which lead to the founder, are those that the receipts name."""
        if "owner" not in exam.keyring.roles:
            return  # they were not to be had; and others than owners see what concerns them
        told = yield from self._get("/v1/grants", answer_bytes_max=LONG_ANSWER_BYTES_MAX)
        answer = Grants.from_json(told)
        objects = {entry.serial: entry.grant_bytes for entry in answer.grants}
        exam.grants = len(objects)
        if exam.followed:
            names = {serial: blob_id(data) for serial, data in objects.items()}
            exam.findings += judge_grants(exam.promises, names)

    # What is stored

    def _check_stored(self, exam: _Examination, names: Sequence[str] | None) -> Operation[None]:
        """Judge everything stored; again, while the account changes and something seems wrong."""
        doubtful: set[tuple[bytes, int]] | None = None
        found: list[Finding] = []
        for _ in range(PASSES_MAX):
            before = exam.history.seq
            found, unproven = yield from self._look(exam, names, doubtful)
            if exam.whole:
                yield from self._follow(exam)
            if doubtful is None:
                exam.unproven = unproven
            if not found or exam.history.seq == before or not exam.whole:
                break
            doubtful = {_place(finding) for finding in found}
        exam.findings += found

    def _look(
        self,
        exam: _Examination,
        names: Sequence[str] | None,
        doubtful: set[tuple[bytes, int]] | None,
    ) -> Operation[tuple[list[Finding], int]]:
        """One look at everything stored, or at what was doubtful; what does not hold, and how
        much of it no receipt vouches for.
        """
        found: list[Finding] = []
        present: set[tuple[bytes, int]] = set()
        newest: dict[bytes, Item] = {}
        ids = None if doubtful is None else {item for item, _ in doubtful}
        unproven, cursor = 0, ""
        while True:
            page, following = yield from self.inventory_page(names, cursor)
            wanted = [i for i in page if ids is None or i.place[0] in ids]
            for item in wanted:
                present.add(item.place)
                if (known := newest.get(item.place[0])) is None or known.revision < item.revision:
                    newest[item.place[0]] = item
                unproven += exam.promises.find_promise(*item.place) is None
                found += exam.promises.judge(item) if exam.followed else ()
            for batch in _batches(wanted):
                found += yield from self._judge_blobs(exam, batch, counts=doubtful is None)
            if following is None:
                break
            cursor = following
        if exam.whole:  # others do not look again at what is erased in between
            found += judge_newest(newest.values())
        if exam.followed:
            found += _find_missing(exam.promises, present, names, ids)
        return found, unproven

    def inventory_page(
        self, names: Sequence[str] | None, cursor: str
    ) -> Operation[tuple[Sequence[Item], str | None]]:
        """Return a page of what is stored, by name, and the cursor of the next one."""
        query: dict[str, Any] = {"cursor": cursor, "limit": PAGE}
        query |= {} if names is None else {"namespaces": list(names)}
        page = Inventory.from_json((yield from self._get("/v1/inventory", query)))
        return page.items, onward(cursor, page.next_cursor)

    def _judge_blobs(
        self, exam: _Examination, items: Sequence[Item], *, counts: bool
    ) -> Operation[list[Finding]]:
        stated = {item.id: exam.promises.states.get(item.place[0]) for item in items}
        names = [item.blob_id for item in items] + [s.blob_id for s in stated.values() if s]
        blobs = yield from self.blobs(list(dict.fromkeys(names)))
        found: list[Finding] = []
        for item in items:
            data, problem = blobs.get(item.blob_id, (None, "missing"))
            faults = list(judge_blob(exam.account, item, data, problem))
            if not faults and exam.opens and data is not None:
                faults += self._open(exam, item, data, counts=counts)
            found += faults
            if not item.earlier and exam.followed:
                found += _judge_state(exam, item, stated[item.id], blobs)
            exam.blobs += counts
        exam.progress("blobs", exam.blobs)
        return found

    def blobs(self, names: Sequence[str]) -> Operation[dict[str, tuple[bytes | None, str]]]:
        """Return stored bytes by name, or None and the relayer's word for why there are none."""
        blobs: dict[str, tuple[bytes | None, str]] = {}
        left = list(names)
        while left:
            body = {"blob_ids": left[:BLOBS_AT_ONCE]}
            call = Call(method="POST", path="/v1/blobs", body=body, repeatable=True)
            answer = Blobs.from_json((yield from self.session.call(call)))
            asked, before = set(left), len(left)
            for blob in answer.blobs:
                if blob.blob_id in asked:
                    data = None if blob.data is None else parse_bytes(blob.data, "blob")
                    blobs[blob.blob_id] = (data, str(blob.problem))
            left = [name for name in left if name not in blobs]
            if len(left) == before:
                break  # what it withholds is missing
        return blobs

    def _open(
        self, exam: _Examination, item: Item, data: bytes, *, counts: bool
    ) -> Iterator[Finding]:
        """Open a blob with the keys at hand; those of named namespaces open only theirs."""
        if item.format != "sealed":
            return
        try:
            keys = exam.keyring.namespace_keys(item.namespace)
            address = Address(TYPES[item.type], exam.account, UUID(item.id), item.revision)
            key = next((key for key in keys if key.epoch == item.epoch), None)
            if key is None:
                raise Invalid("epoch", f"This key holds nothing of epoch {item.epoch}.")
            record = read_json_object(open_envelope(address, key, data))
            namespace = SealedScope.from_json(record).ns
            if namespace != item.namespace:
                raise Invalid("namespace", f"It was sealed for {namespace!r}.")
            exam.opened += counts
        except (Invalid, NotGranted, ServerError, KeyError) as error:
            reason = str(error) if isinstance(error, Invalid | NotGranted) else "no record inside"
            yield Finding(what="sealed", id=item.id, expected="a record", found=reason)

    def _verification(
        self, exam: _Examination, since: bytes | None, unchecked: tuple[str, ...]
    ) -> Verification:
        findings = distinct(exam.findings)
        if exam.whole and not findings and since is None:
            self.session.note_checked(exam.history.seq, exam.history.head)
        return Verification(
            ok=not findings,
            account_id=account_text(exam.account),
            relayer_key=exam.relayers[-1].hex(),
            seq=exam.history.seq,
            head=exam.history.head.hex(),
            receipts=exam.receipts,
            grants=exam.grants,
            blobs=exam.blobs,
            opened=exam.opened,
            unproven=exam.unproven if exam.whole else 0,
            notes=tuple(exam.notes),
            unchecked=unchecked,
            findings=findings,
        )


def _list_unchecked(exam: _Examination) -> tuple[str, ...]:
    """List the kinds of objects that this key is not shown, or not all of."""
    if not exam.whole:
        return "receipts", "grants"
    roles = exam.keyring.roles
    return ("grants",) if roles and "owner" not in roles else ()


def _history(relayers: tuple[bytes, ...], account: bytes, start: Checkpoint | None) -> History:
    if start is None:
        return History(relayers, account)
    later = relayers[relayers.index(start.relayer) :]
    return History(later, account, seq=start.seq, head=start.head)


def _promises(start: Checkpoint | None) -> Promises:
    if start is None:
        return Promises()
    return Promises(complete=False, serial=start.grant_serial, seq=start.seq)


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Items whose blobs fit into one answer."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and (len(batch) == BLOBS_AT_ONCE // 2 or size + item.size > BLOB_BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
    if batch:
        yield batch


def _find_missing(
    promises: Promises,
    present: set[tuple[bytes, int]],
    names: Sequence[str] | None,
    ids: set[bytes] | None,
) -> Iterator[Finding]:
    """Revisions that receipts promise and that are not stored."""
    for item, named in promises:
        looked_at = (names is None or named.namespace in names) and (ids is None or item in ids)
        if looked_at and (item, named.revision) not in present:
            yield Finding(
                what="missing",
                id=str(UUID(bytes=item)),
                seq=named.seq,
                expected=f"revision {named.revision}, blob {named.blob_id}",
                found="nothing",
            )


def _place(finding: Finding) -> tuple[bytes, int]:
    return UUID(finding.id).bytes if finding.id else b"", 0


def _judge_state(
    exam: _Examination,
    item: Item,
    stated: StatePromise | None,
    blobs: Mapping[str, tuple[bytes | None, str]],
) -> Iterator[Finding]:
    """Judge a row by the newest signed state of its memory, which must be the one receipts name."""
    if stated is None:
        # Of what lies before the history that was followed, nothing is known.
        if exam.promises.complete:
            yield from judge_state(item, None, None)
        return
    try:
        state = _read_state(exam, item, stated, *blobs.get(stated.blob_id, (None, "missing")))
    except Invalid as error:
        expected = f"object {stated.blob_id}"
        yield Finding(what="state", id=item.id, seq=stated.seq, expected=expected, found=str(error))
        return
    yield from judge_state(item, stated, state)


def _read_state(
    exam: _Examination, item: Item, stated: StatePromise, data: bytes | None, problem: str
) -> dict[str, Any]:
    if data is None or blob_id(data) != stated.blob_id:
        raise Invalid("blob", f"a state object that is {problem}.")
    value = read_object("state", data, signer=signer_of(data, exam.relayers))
    about = (value["account"], value["memory"], value["seq"])
    state: dict[str, Any] = value["state"]
    if about != (account_text(exam.account), item.id, stated.seq) or not isinstance(state, dict):
        raise Invalid("state", "a state object about something else.")
    return state
