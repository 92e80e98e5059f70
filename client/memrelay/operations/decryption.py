"""Reading a memory from its sealed bytes with one's own key, where the relayer's word is doubted.

It does not own the whole account's proof (`audit.py`) or the formats (`sealed/`).

- What is told of the memory only leads to the bytes: these say whose they are, and what is in them.

Source: SPEC.md §7, §15.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from memrelay.answers import Answer, make_malformed_error, read_json_object
from memrelay.errors import Invalid, NotGranted, ServerError, UntrustedRelayer
from memrelay.exchange import Operation
from memrelay.models import Memory
from memrelay.operations.corrections import check_same_id
from memrelay.operations.keyholders import Keyholders
from memrelay.sealed.envelope import MEMORY, SUMMARY, Address, blob_id, open_envelope, read_header
from memrelay.sealed.ledger import Keyring
from memrelay.sealed.objects import uuid_text


@dataclass(frozen=True, kw_only=True)
class Record(Answer):
    """The content that was sealed: the words, and the namespace that they were sealed for."""

    ns: str
    text: str


def open_memory(
    operations: Keyholders,
    memory_id: str,
    *,
    namespace: str | None = None,
    revision: int | None = None,
) -> Operation[Memory]:
    """Return a memory as `get` does, its text from the stored bytes, which this client opened.

    Raises:
        NotGranted: this key opens nothing of its namespace or epoch, or another client sealed it.
        UntrustedRelayer: the bytes are missing, another memory's, or say something else than told.
    """
    told = yield from operations.get(memory_id, namespace=namespace, revision=revision)
    check_same_id(memory_id, told.id)
    if told.text is None:
        raise NotGranted("Another client sealed this memory, under a key of its own.")
    if told.blob_id is None or told.revision is None:
        raise make_malformed_error("Memory.blob_id")
    if told.revision != (revision or told.revision):
        raise UntrustedRelayer("revision", "The relayer answered for another revision than asked.")
    blobs = yield from operations.blobs([told.blob_id])
    data, _ = blobs.get(told.blob_id, (None, "missing"))
    if data is None or blob_id(data) != told.blob_id:
        raise UntrustedRelayer("blob", "The memory's bytes are not there, or are others.")
    keyring = yield from operations.session.keyring()
    try:
        record = _open(keyring, operations.session.account, told, data)
    except (Invalid, ServerError) as error:
        raise UntrustedRelayer("sealed", f"The memory's bytes do not hold it: {error}") from error
    if (record.ns, record.text) != (told.namespace, told.text):
        raise UntrustedRelayer("text", "The memory's bytes say something else than the relayer.")
    return replace(told, text=record.text)


def _open(keyring: Keyring, account: bytes, told: Memory, data: bytes) -> Record:
    header = read_header(data)
    keys = {key.epoch: key for key in keyring.namespace_keys(told.namespace)}
    if header.epoch not in keys:
        raise NotGranted(f"This key holds nothing of epoch {header.epoch}.")
    kind = SUMMARY if header.address.type == SUMMARY else MEMORY
    address = Address(kind, account, UUID(uuid_text(told.id)), told.revision or 0)
    return Record.from_json(read_json_object(open_envelope(address, keys[header.epoch], data)))
