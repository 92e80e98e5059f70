"""The test vectors' operations, done by the client's code.

It does not own the vectors or what they must say (`test_vectors.py`).
"""

import base64
import io
import struct
from typing import Any
from uuid import UUID

from nacl import bindings

from memrelay import signing
from memrelay.errors import Invalid
from memrelay.sealed import archive, envelope, keys, ledger, objects, receipts, statement, unlock
from memrelay.sealed.grants import open_grant, read_grant
from memrelay.sealed.keys import Identity, NamespaceKey, Root
from tests import relayers_part

Json = dict[str, Any]

REFUSAL = Invalid
# The client's codes for each word of the vectors, where they are not the word itself.
WORDS = {
    "box_closed": {"box"},
    "box_form": {"box"},
    "box_length": {"box"},
    "custodian": {"role"},
    "decryption": {"aead"},
    "founder": {"issuer"},
    "key": {"epoch", "key_id"},
    "key_length": {"length"},
    "length": {"length", "json"},
    "owner_kept": {"role"},
    "relayer": {"account"},
    "role_scope": {"scope"},
    "row": {"type", "account", "memory", "revision"},
    "items": {"items", "list"},
    "text": {"text", "uuid", "base64"},
}


def refusal(error: Invalid, operation: str) -> str:
    """The client's code."""
    return error.code


def namespace_key(given: Json) -> NamespaceKey:
    return NamespaceKey(
        bytes.fromhex(given["namespace_key"]),
        given["epoch"],
        keys.normalise_namespace(given["namespace"]),
    )


def do_mac(given: Json) -> Json:
    parts = [bytes.fromhex(part) for part in given["parts"]]
    found = keys.mac(given["size"], bytes.fromhex(given["key"]), given["label"], *parts)
    return {"mac": found.hex()}


def do_keys(given: Json) -> Json:
    founder = Identity(bytes.fromhex(given["seed"]))
    account = keys.account_id_of(founder.public_key)
    root = Root(bytes.fromhex(given["root"]), given["epoch"])
    key = root.namespace_key(account, given["namespace"])
    labels = ("seal", "index", "vector", "fingerprint", "idempotency")
    return {
        "public_key": founder.public_key.hex(),
        "exchange_public": founder.exchange_public.hex(),
        "exchange_secret": founder.exchange_secret.hex(),
        "account": keys.account_text(account),
        "root_id": root.root_id.hex(),
        "namespace_key": key.key.hex(),
        "key_id": key.key_id.hex(),
        **{label: key.subkey(label).hex() for label in labels},
    }


def do_public_key(given: Json) -> Json:
    key = keys.public_key_bytes(given["public_key"])
    return {"exchange_public": keys.exchange_public(key).hex()}


def do_namespace(given: Json) -> Json:
    return {"namespace": keys.normalise_namespace(given["name"])}


def address_of(given: Json) -> envelope.Address:
    account = keys.account_bytes(given["account"])
    return envelope.Address(given["type"], account, UUID(given["memory"]), given["revision"])


def do_envelope(given: Json) -> Json:
    stored = base64.b64decode(given["envelope"])
    record = envelope.open_envelope(address_of(given), namespace_key(given), stored)
    return {
        "record": objects.to_base64(record),
        "padded_bytes": len(envelope.pad(record)),
        "created": envelope.read_header(stored).created_ms,
        "blob_id": envelope.blob_id(stored),
    }


def rebuild_envelope(given: Json, output: Json, made_with: Json) -> Json:
    stored = envelope.seal_envelope(
        address_of(given),
        namespace_key(given),
        base64.b64decode(output["record"]),
        created_ms=output["created"],
        nonce=bytes.fromhex(made_with["nonce"]),
    )
    return {"envelope": objects.to_base64(stored)}


def do_token(given: Json) -> Json:
    index_key = namespace_key(given).subkey("index")
    return {"token": relayers_part.token(index_key, given["field"], given["term"])}


def do_fingerprint(given: Json) -> Json:
    fingerprint_key = namespace_key(given).subkey("fingerprint")
    found = relayers_part.fingerprint(
        fingerprint_key, given["kind"], given["event_time"], given["text"]
    )
    return {"fingerprint": found.hex()}


def do_idempotency(given: Json) -> Json:
    idempotency_key = namespace_key(given).subkey("idempotency")
    writer = keys.public_key_bytes(given["writer"])
    mark = relayers_part.idempotency_tag(
        idempotency_key, writer, given["route"], given["item"], given["key"]
    )
    text_mark = relayers_part.idempotency_text(idempotency_key, given["text"])
    return {"mark": mark.hex(), "text_mark": text_mark.hex()}


def do_lengths(given: Json) -> Json:
    return {"rounded": [relayers_part.length_bucket(words) for words in given["words"]]}


def do_index_record(given: Json) -> Json:
    stored = base64.b64decode(given["record"])
    account = keys.account_bytes(given["account"])
    address = envelope.Address(envelope.MEMORY, account, UUID(given["memory"]), given["revision"])
    found = relayers_part.open_index_record(address, namespace_key(given), stored)
    return {**found, "padded_bytes": len(stored) - 41}


def do_turn(given: Json) -> Json:
    key, vector = namespace_key(given), given["vector"]
    parts = (given["model"].encode(), struct.pack(">I", len(vector)))
    seed = keys.kdf(key.subkey("vector"), "turn", *parts)
    return {"seed": seed.hex(), "turned": relayers_part.turn_vector(key, given["model"], vector)}


def do_request(given: Json) -> Json:
    identity = Identity(bytes.fromhex(given["seed"]))
    text = signing.make_signed_text(
        timestamp_s=given["timestamp"],
        method=given["method"],
        target=given["target"],
        body=base64.b64decode(given["body"]),
        nonce=given["nonce"],
        account_id=given["account_id"],
    )
    return {
        "text": text.decode(),
        "public_key": identity.public_key.hex(),
        "signature": identity.sign(text).hex(),
    }


def do_json(given: Json) -> Json:
    return {"value": objects.read_json(given["payload"], given["members"])}


def do_object(given: Json) -> Json:
    signer = keys.public_key_bytes(given["signer"])
    data = base64.b64decode(given["object"])
    return {"members": objects.read_object(given["kind"], data, signer=signer)}


def _rebuild(kind: str, output: Json, made_with: Json) -> str:
    identity = Identity(bytes.fromhex(made_with["seed"]))
    return objects.to_base64(objects.sign_object(kind, output["members"], identity))


def rebuild_object(given: Json, output: Json, made_with: Json) -> Json:
    return {"object": _rebuild(given["kind"], output, made_with)}


def do_grant(given: Json) -> Json:
    data = base64.b64decode(given["grant"])
    grant = read_grant(data)
    keys.account_bytes(grant.account)  # the client compares the text, and in its ledger only
    opened = open_grant(grant, Identity(bytes.fromhex(given["recipient_seed"])))
    members = {
        "account": grant.account,
        "grant": grant.grant,
        "serial": grant.serial,
        "issuer": grant.issuer.hex(),
        "recipient": grant.recipient.hex(),
        "role": grant.role,
        "scope": [_scope_members(key) for key in opened],
        "created": grant.created_ms,
        "expires": grant.expires_ms,
        "box": objects.to_base64(grant.box),
    }
    return {"members": members, "keys": [key.key.hex() for key in opened]}


def _scope_members(key: Root | NamespaceKey) -> Json:
    if isinstance(key, Root):
        return {"epoch": key.epoch, "root_id": key.root_id.hex()}
    return {"ns": key.name, "epoch": key.epoch, "key_id": key.key_id.hex()}


def rebuild_grant(given: Json, output: Json, made_with: Json) -> Json:
    return {"grant": _rebuild("grant", output, made_with)}


def do_revocation(given: Json) -> Json:
    revocation = ledger.read_revocation(base64.b64decode(given["object"]))
    keys.account_bytes(revocation.account)
    members = {
        "account": revocation.account,
        "serial": revocation.serial,
        "issuer": revocation.issuer.hex(),
        "recipient": revocation.recipient.hex(),
        "created": revocation.created_ms,
    }
    return {"members": members}


def rebuild_revocation(given: Json, output: Json, made_with: Json) -> Json:
    return {"object": _rebuild("revoke", output, made_with)}


def do_join(given: Json) -> Json:
    data = base64.b64decode(given["object"])
    recipient = relayers_part.read_join(
        data,
        account=keys.account_bytes(given["account"]),
        issuer=bytes.fromhex(given["issuer"]),
        relayer=bytes.fromhex(given["relayer"]),
    )
    # The client returns who joins, where the relayer is told; comparing is the caller's part.
    if recipient.hex() != given["recipient"]:
        raise Invalid("joiner", "Another key joins.")
    return {"members": objects.read_object("join", data, signer=recipient)}


def rebuild_join(given: Json, output: Json, made_with: Json) -> Json:
    account, issuer = output["members"]["account"], output["members"]["issuer"]
    signed = objects.sign_join(
        Identity(bytes.fromhex(made_with["seed"])),
        account=None if account is None else keys.account_bytes(account),
        issuer=None if issuer is None else bytes.fromhex(issuer),
        relayer=bytes.fromhex(given["relayer"]),
    )
    return {"object": objects.to_base64(signed)}


def do_statement(given: Json) -> Json:
    data = base64.b64decode(given["object"])
    read = statement.read_statement(
        data, pinned=bytes.fromhex(given["pinned"]), now_ms=given["now"]
    )
    unlock_keys = [
        {"kid": key.kid.hex(), "key": key.key.hex(), "not_after": key.not_after_ms}
        for key in read.unlock_keys
    ]
    members = {"relayer": read.relayer.hex(), "issued": read.issued_ms, "unlock_keys": unlock_keys}
    return {"members": members}


def rebuild_statement(given: Json, output: Json, made_with: Json) -> Json:
    return {"object": _rebuild("relayer", output, made_with)}


def do_receipts(given: Json) -> Json:
    followed = receipts.follow_receipts(
        [base64.b64decode(receipt) for receipt in given["receipts"]],
        relayers=[bytes.fromhex(key) for key in given["relayers"]],
        account=keys.account_bytes(given["account"]),
        seq=given["seq"],
        head=bytes.fromhex(given["head"]),
    )
    last = followed[-1] if followed else None
    return {
        "seq": last.seq if last else given["seq"],
        "head": last.digest.hex() if last else given["head"],
        "members": [_receipt_members(receipt) for receipt in followed],
    }


def _receipt_members(receipt: receipts.Receipt) -> Json:
    return {
        "relayer": receipt.relayer.hex(),
        "account": keys.account_text(receipt.account),
        "seq": receipt.seq,
        "prev": receipt.prev.hex(),
        "time": receipt.time_ms,
        "op": receipt.op,
        "actor": receipt.actor.hex(),
        "namespace": receipt.namespace,
        "epoch": receipt.epoch,
        "items": [list(item) for item in receipt.items],
        "serial": receipt.serial,
    }


def rebuild_receipts(given: Json, output: Json, made_with: Json) -> Json:
    seeds = dict(zip(given["relayers"], made_with["seeds"], strict=True))
    made = [
        _rebuild("receipt", {"members": m}, {"seed": seeds[m["relayer"]]})
        for m in output["members"]
    ]
    return {"receipts": made}


def do_checkpoint(given: Json) -> Json:
    read = receipts.read_checkpoint(
        base64.b64decode(given["object"]),
        relayers=[bytes.fromhex(key) for key in given["relayers"]],
        account=keys.account_bytes(given["account"]),
    )
    members = {
        "relayer": read.relayer.hex(),
        "account": keys.account_text(read.account),
        "seq": read.seq,
        "head": read.head.hex(),
        "grant_serial": read.grant_serial,
        "time": read.time_ms,
    }
    return {"members": members}


def rebuild_checkpoint(given: Json, output: Json, made_with: Json) -> Json:
    return {"object": _rebuild("checkpoint", output, made_with)}


def do_succession(given: Json) -> Json:
    named = [base64.b64decode(signed) for signed in given["objects"]]
    found = statement.read_succession(named, last=bytes.fromhex(given["last"]))
    return {"keys": [key.hex() for key in found]}


def do_chain(given: Json) -> Json:
    history = ledger.Ledger(keys.account_bytes(given["account"]))
    for signed in given["succession"]:
        history.learn(base64.b64decode(signed))
    for signed in given["objects"]:
        data = base64.b64decode(signed)
        is_grant = b'"grant":' in data
        history.add(read_grant(data) if is_grant else ledger.read_revocation(data))
    live = {
        key: [grant.serial for grant in history.list_grants_to(bytes.fromhex(key), given["now"])]
        for key in given["about"]
    }
    return {"serial": history.serial, "live": live}


def do_epochs(given: Json) -> Json:
    pairs = [("grant", base64.b64decode(signed)) for signed in given["objects"]]
    history = ledger.Ledger.of(keys.account_bytes(given["account"]), pairs)
    held = history.list_grants_to(bytes.fromhex(given["about"]), given["now"])
    return {"oldest": ledger.oldest_epoch(held)}


def do_unlock(given: Json) -> Json:
    secrets = [bytes.fromhex(secret) for secret in given["unlock_secrets"]]
    by_kid = {keys.hash_256(bindings.crypto_scalarmult_base(s))[:8]: s for s in secrets}
    opened = relayers_part.open_unlock(
        given["header"],
        unlock_secrets=by_kid,
        relayer=bytes.fromhex(given["relayer"]),
        account=keys.account_bytes(given["account"]),
        sender=bytes.fromhex(given["sender"]),
        now_ms=given["now"],
    )
    return {
        "iat": opened.issued_ms,
        "hold": opened.hold_s,
        "keys": [
            {"ns": key.name, "epoch": key.epoch, "key": objects.to_base64(key.key)}
            for key in opened.keys
        ],
    }


def rebuild_unlock(given: Json, output: Json, made_with: Json) -> Json:
    lent = tuple(
        NamespaceKey(base64.b64decode(k["key"]), k["epoch"], k["ns"]) for k in output["keys"]
    )
    content = unlock.Unlock(
        relayer=bytes.fromhex(given["relayer"]),
        account=keys.account_bytes(given["account"]),
        sender=bytes.fromhex(given["sender"]),
        issued_ms=output["iat"],
        hold_s=output["hold"],
        keys=lent,
    )
    header = unlock.build_unlock(
        Identity(bytes.fromhex(made_with["seed"])),
        content,
        [bytes.fromhex(key) for key in made_with["unlock_keys"]],
        content_key=bytes.fromhex(made_with["content_key"]),
        box_nonces=[bytes.fromhex(nonce) for nonce in made_with["box_nonces"]],
        nonce=bytes.fromhex(made_with["nonce"]),
    )
    return {"header": header}


def do_archive(given: Json) -> Json:
    file = io.BytesIO(base64.b64decode(given["archive"]))
    header = archive.read_head(file)
    if header.account != keys.account_bytes(given["account"]):
        raise Invalid("account", "another account's archive")
    recipient = Identity(bytes.fromhex(given["recipient_seed"]))
    key = archive.ChunkKey(header.archive, archive.open_box(header, recipient))
    chunks = list(archive.open_chunks(file, key))
    return {
        "archive_id": str(header.archive),
        "created": header.created_ms,
        "signer": header.signer.hex(),
        "relayer": header.relayer.hex(),
        "records": list(archive.read_records(chunks)),
        "chunk_sizes": [len(chunk) for chunk in chunks],
    }


def rebuild_archive(given: Json, output: Json, made_with: Json) -> Json:
    data = base64.b64decode(given["archive"])
    file = io.BytesIO(data)
    archive.read_head(file)
    key = archive.ChunkKey(UUID(output["archive_id"]), bytes.fromhex(made_with["key"]))
    stream = b"".join(map(archive.write_record, output["records"]))
    rebuilt, at = data[: file.tell()], 0
    for index, size in enumerate(output["chunk_sizes"]):
        nonce = bytes.fromhex(made_with["nonces"][index])
        last = index == len(output["chunk_sizes"]) - 1
        rebuilt += key.seal(index, stream[at : at + size], last=last, nonce=nonce)
        at += size
    return {"archive": objects.to_base64(rebuilt)}


OPERATIONS = {
    "archive": do_archive,
    "mac": do_mac,
    "keys": do_keys,
    "public-key": do_public_key,
    "namespace": do_namespace,
    "envelope": do_envelope,
    "token": do_token,
    "fingerprint": do_fingerprint,
    "idempotency": do_idempotency,
    "lengths": do_lengths,
    "index-record": do_index_record,
    "turn": do_turn,
    "request": do_request,
    "json": do_json,
    "object": do_object,
    "grant": do_grant,
    "revocation": do_revocation,
    "join": do_join,
    "statement": do_statement,
    "receipts": do_receipts,
    "checkpoint": do_checkpoint,
    "succession": do_succession,
    "chain": do_chain,
    "epochs": do_epochs,
    "unlock": do_unlock,
}
# Making the input again from what was read of it and the maker's secrets.
REBUILDS = {
    "archive": rebuild_archive,
    "envelope": rebuild_envelope,
    "object": rebuild_object,
    "grant": rebuild_grant,
    "revocation": rebuild_revocation,
    "join": rebuild_join,
    "statement": rebuild_statement,
    "receipts": rebuild_receipts,
    "checkpoint": rebuild_checkpoint,
    "unlock": rebuild_unlock,
}
