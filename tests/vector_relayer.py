"""The test vectors' operations, done by the relayer's code.

It does not own the vectors or what they must say (`test_vectors.py`).
"""

import uuid
from typing import Any

import numpy as np
from nacl import bindings

from relayer.http.checks import parse_headers
from relayer.sealed import (
    envelope,
    grants,
    index,
    index_record,
    objects,
    receipts,
    succession,
    unlock,
)
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    Root,
    account_id,
    account_text,
    parse_account,
    parse_namespace,
    parse_public_key,
)
from relayer.sealed.primitives import (
    AEAD_TAG_BYTES,
    CryptoError,
    exchange_public_key,
    from_base64,
    kdf,
    mac,
    to_base64,
    u32,
    verify_signature,
)
from relayer.sealed.vector_turn import derive_vector_turn
from tests.chains import verify_chain
from tests.vector_archive import do_archive

Json = dict[str, Any]

REFUSAL = CryptoError
MEMBERS = {
    "state": ["relayer", "account", "memory", "revision", "seq", "time", "expires_at", "state"],
    "relayer-next": ["relayer", "next", "created"],
    "relayer": ["relayer", "issued", "unlock_keys"],
    "checkpoint": ["relayer", "account", "seq", "head", "grant_serial", "time"],
}
# What the relayer says for each word of the vectors.
WORDS = {
    "archive": {"no archive"},
    "base64": {"bad base64", "base64 is not canonical"},
    "box": {"the box belongs to another grant"},
    "box_closed": {"the box does not open"},
    "box_form": {"missing or unknown members", "not strict JSON"},
    "box_length": {"bad box length"},
    "account": {"an account id is 0x and 64 lower-case hex digits", "another account's object"},
    "chain": {"the chain of receipts is broken", "the chain of issuers is too long"},
    "custodian": {"only owners appoint a custodian"},
    "decryption": {"decryption failed"},
    "epoch": {"a member is out of range"},
    "founder": {"the first issuer is not the founder"},
    "hex": {"a key is 64 lower-case hex digits"},
    "integer": {"a member is out of range"},
    "issuer": {"the issuer may not issue"},
    "items": {"bad items", "bad item"},
    "join": {"the join names something else"},
    "joiner": {"bad signature"},
    "json": {"not strict JSON", "nested too deeply", "too large", "not an object"},
    "key": {"the envelope belongs to another key"},
    "key_id": {"a key does not match its id"},
    "key_length": {"bad namespace key"},
    "keys": {"the box holds other keys than the scope names"},
    "length": {"a key is 32 bytes", "too short for an envelope", "bad object length"},
    "members": {"missing or unknown members", "malformed object", "unknown version"},
    "namespace": {
        "a namespace has 1 to 128 characters",
        "a namespace has no control or unassigned characters",
        "a namespace has no bidirectional controls",
        "a namespace has no characters that nobody sees",
        "a namespace does not begin or end with white space",
        "a namespace is named in its normalised form",
    },
    "op": {"another relayer's receipt or an unknown operation"},
    "owner_kept": {"a custodian revokes no owner", "only the founder revokes the founder"},
    "padding": {"bad padding"},
    "pin": {"bad signature"},
    "public_key": {"the public key is not on the main subgroup"},
    "record": {"not a record of an archive"},
    "recipient": {"the grant is for another key"},
    "relayer": {
        "another relayer's checkpoint",
        "another relayer's receipt or an unknown operation",
    },
    "role": {"unknown role"},
    "role_scope": {"owners and custodians hold roots"},
    "no_record": {"no index record"},
    "row": {"the envelope belongs to another row"},
    "scope": {
        "bad scope",
        "bad scope entry",
        "a scope names nothing twice",
        "a scope gives roots or namespaces, not both",
    },
    "serial": {"serials rise by one"},
    "signature": {"bad signature"},
    "succession": {
        "a succession of keys has a gap",
        "a succession of keys is too long or comes back",
    },
    "successor": {"a relayer names one successor"},
    "text": {"a member has the wrong type"},
    "unlock_key_unknown": {"UnknownUnlockKey"},
    "unlock_rejected": {"CryptoError"},
    "uuid": {"bad UUID", "a UUID is lower-case with hyphens"},
    "version": {"unknown version", "unknown version or suite"},
}


def refusal(error: CryptoError, operation: str) -> str:
    """How the relayer puts it; unlock failures are told apart by type only, as on the wire."""
    return type(error).__name__ if operation == "unlock" else str(error)


def namespace_key(given: Json) -> NamespaceKey:
    return NamespaceKey(
        parse_namespace(given["namespace"]), given["epoch"], bytes.fromhex(given["namespace_key"])
    )


def do_mac(given: Json) -> Json:
    parts = [bytes.fromhex(part) for part in given["parts"]]
    return {"mac": mac(given["size"], bytes.fromhex(given["key"]), given["label"], *parts).hex()}


def do_keys(given: Json) -> Json:
    founder = Identity(bytes.fromhex(given["seed"]))
    account = account_id(founder.public_key)
    root = Root(given["epoch"], bytes.fromhex(given["root"]))
    key = root.namespace_key(account, Namespace(given["namespace"]))
    return {
        "public_key": founder.public_key.hex(),
        "exchange_public": founder.exchange_public_key.hex(),
        "exchange_secret": founder.exchange_private_key.hex(),
        "account": account_text(account),
        "root_id": root.root_id.hex(),
        "namespace_key": key.key.hex(),
        "key_id": key.key_id.hex(),
        "seal": key.seal.hex(),
        "index": key.index.hex(),
        "vector": key.vector.hex(),
        "fingerprint": key.fingerprint.hex(),
        "idempotency": key.idempotency.hex(),
    }


def do_public_key(given: Json) -> Json:
    key = parse_public_key(given["public_key"])
    return {"exchange_public": exchange_public_key(key).hex()}


def do_namespace(given: Json) -> Json:
    return {"namespace": parse_namespace(given["name"])}


def address(given: Json) -> envelope.Address:
    account = parse_account(given["account"])
    return envelope.Address(given["type"], account, uuid.UUID(given["memory"]), given["revision"])


def do_envelope(given: Json) -> Json:
    stored = from_base64(given["envelope"])
    record = envelope.open_envelope(namespace_key(given), address(given), stored)
    return {
        "record": to_base64(record),
        "padded_bytes": len(envelope.pad(record)),
        "created": envelope.read_header(stored).created_ms,
        "blob_id": envelope.blob_id(stored),
    }


def rebuild_envelope(given: Json, output: Json, made_with: Json) -> Json:
    stored = envelope.seal(
        namespace_key(given),
        address(given),
        from_base64(output["record"]),
        created_ms=output["created"],
        nonce=bytes.fromhex(made_with["nonce"]),
    )
    return {"envelope": to_base64(stored)}


def do_token(given: Json) -> Json:
    return {"token": index.token(namespace_key(given), given["field"], given["term"])}


def do_fingerprint(given: Json) -> Json:
    found = index.fingerprint(
        namespace_key(given),
        kind=given["kind"],
        event_time_ms=given["event_time"],
        text=given["text"],
    )
    return {"fingerprint": found.hex()}


def do_idempotency(given: Json) -> Json:
    mark = index.idempotency_mark(
        namespace_key(given),
        writer=parse_public_key(given["writer"]),
        route=given["route"],
        item=given["item"],
        caller_key=given["key"],
    )
    text_mark = index.text_mark(namespace_key(given), given["text"])
    return {"mark": mark.hex(), "text_mark": text_mark.hex()}


def do_lengths(given: Json) -> Json:
    return {"rounded": [index.round_length(words) for words in given["words"]]}


def do_index_record(given: Json) -> Json:
    stored = from_base64(given["record"])
    memory = uuid.UUID(given["memory"])
    account = parse_account(given["account"])
    record = index_record.open_record(
        namespace_key(given), account, memory, given["revision"], stored
    )
    return {
        "length": record.length,
        "source": None if record.source is None else str(record.source),
        "postings": [[str(token), count] for token, count in record.postings.items()],
        "vectors": record.vectors.tolist(),
        "padded_bytes": len(stored) - index_record.MARK_BYTES - AEAD_TAG_BYTES,
    }


def rebuild_index_record(given: Json, output: Json, made_with: Json) -> Json:
    vectors = np.array(output["vectors"] or np.zeros((0, 0)), np.int8)
    source = None if output["source"] is None else int(output["source"])
    postings = {int(token): count for token, count in output["postings"]}
    record = index_record.IndexRecord.of(output["length"], source, postings, vectors)
    stored = index_record.seal_record(
        namespace_key(given),
        parse_account(given["account"]),
        uuid.UUID(given["memory"]),
        given["revision"],
        record,
        nonce=bytes.fromhex(made_with["nonce"]),
    )
    return {"record": to_base64(stored)}


def do_turn(given: Json) -> Json:
    key, vector = namespace_key(given), given["vector"]
    turn = derive_vector_turn(key, given["model"], len(vector))
    turned = turn.apply(np.array([vector], dtype=np.float32))
    seed = kdf(key.vector, "turn", given["model"].encode(), u32(len(vector)))
    return {"seed": seed.hex(), "turned": turned[0].tolist()}


def do_request(given: Json) -> Json:
    identity = Identity(bytes.fromhex(given["seed"]))
    headers = {
        "x-public-key": identity.public_key.hex(),
        "x-signature": bytes(64).hex(),
        "x-timestamp": str(given["timestamp"]),
        "x-nonce": given["nonce"],
        "x-account-id": given["account_id"],
    }
    request = parse_headers([(k.encode(), v.encode()) for k, v in headers.items()])
    message = request.message(given["method"], given["target"], from_base64(given["body"]))
    signature = identity.sign(message)
    verify_signature(request.public_key, message, signature)
    return {
        "text": message.decode(),
        "public_key": request.public_key.hex(),
        "signature": signature.hex(),
    }


def do_json(given: Json) -> Json:
    return {"value": objects.strict_json(given["payload"])}


def do_object(given: Json) -> Json:
    signer = parse_public_key(given["signer"])
    members = frozenset(MEMBERS[given["kind"]])
    signed = from_base64(given["object"])
    return {"members": objects.open_object(signed, given["kind"], signer, members)}


def rebuild_object(given: Json, output: Json, made_with: Json) -> Json:
    identity = Identity(bytes.fromhex(made_with["seed"]))
    return {"object": to_base64(objects.sign_object(identity, given["kind"], output["members"]))}


def do_grant(given: Json) -> Json:
    grant = grants.parse_grant(from_base64(given["grant"]))
    keys = grants.open_grant(grant, Identity(bytes.fromhex(given["recipient_seed"])))
    members = {
        "account": account_text(grant.account),
        "grant": str(grant.grant),
        "serial": grant.serial,
        "issuer": grant.issuer.hex(),
        "recipient": grant.recipient.hex(),
        "role": grant.role,
        "scope": [grants._scope_json(key) for key in keys],
        "created": grant.created_ms,
        "expires": grant.expires_ms,
        "box": to_base64(grant.box),
    }
    return {"members": members, "keys": [key.key.hex() for key in keys]}


def rebuild_grant(given: Json, output: Json, made_with: Json) -> Json:
    identity = Identity(bytes.fromhex(made_with["seed"]))
    return {"grant": to_base64(objects.sign_object(identity, "grant", output["members"]))}


def do_revocation(given: Json) -> Json:
    revocation = grants.parse_revocation(from_base64(given["object"]))
    members = {
        "account": account_text(revocation.account),
        "serial": revocation.serial,
        "issuer": revocation.issuer.hex(),
        "recipient": revocation.recipient.hex(),
        "created": revocation.created_ms,
    }
    return {"members": members}


def rebuild_revocation(given: Json, output: Json, made_with: Json) -> Json:
    m = output["members"]
    signed = grants.issue_revocation(
        Identity(bytes.fromhex(made_with["seed"])),
        account=parse_account(m["account"]),
        serial=m["serial"],
        recipient=parse_public_key(m["recipient"]),
        created_ms=m["created"],
    )
    return {"object": to_base64(signed)}


def do_join(given: Json) -> Json:
    grants.verify_join(
        from_base64(given["object"]),
        account=parse_account(given["account"]),
        issuer=parse_public_key(given["issuer"]),
        recipient=parse_public_key(given["recipient"]),
        relayer=parse_public_key(given["relayer"]),
    )
    signer, members = parse_public_key(given["recipient"]), frozenset(grants._JOIN)
    return {"members": objects.open_object(from_base64(given["object"]), "join", signer, members)}


def rebuild_join(given: Json, output: Json, made_with: Json) -> Json:
    account, issuer = output["members"]["account"], output["members"]["issuer"]
    signed = grants.sign_join(
        Identity(bytes.fromhex(made_with["seed"])),
        account=None if account is None else parse_account(account),
        issuer=None if issuer is None else parse_public_key(issuer),
        relayer=parse_public_key(given["relayer"]),
    )
    return {"object": to_base64(signed)}


def do_statement(given: Json) -> Json:
    """The relayer never reads a statement: what it signs is checked by `rebuild_statement`."""
    return do_object({"object": given["object"], "kind": "relayer", "signer": given["pinned"]})


def rebuild_statement(given: Json, output: Json, made_with: Json) -> Json:
    m = output["members"]
    keys = [
        unlock.UnlockKey(b"", bytes.fromhex(k["key"]), k["not_after"]) for k in m["unlock_keys"]
    ]
    signed = receipts.sign_statement(
        Identity(bytes.fromhex(made_with["seed"])),
        issued_ms=m["issued"],
        unlock_keys=[(k.kid, k.public_key, k.not_after_ms) for k in keys],
    )
    return {"object": to_base64(signed)}


def do_receipts(given: Json) -> Json:
    relayers = [parse_public_key(key) for key in given["relayers"]]
    signed = [from_base64(receipt) for receipt in given["receipts"]]
    seq, head = verify_chain(signed, *relayers, seq=given["seq"], head=bytes.fromhex(given["head"]))
    opened = [receipts.open_receipt(receipt, *relayers) for receipt in signed]
    return {
        "seq": seq,
        "head": head.hex(),
        "members": [_receipt_members(receipt) for receipt in opened],
    }


def _receipt_members(receipt: receipts.Receipt) -> Json:
    assert receipt.relayer is not None
    return {
        "relayer": receipt.relayer.hex(),
        "account": account_text(receipt.account),
        "seq": receipt.seq,
        "prev": receipt.previous.hex(),
        "time": receipt.time_ms,
        "op": receipt.op,
        "actor": receipt.actor.hex(),
        "namespace": receipt.namespace,
        "epoch": receipt.epoch,
        "items": [[str(i.memory), i.revision, i.blob_id] for i in receipt.items],
        "serial": receipt.serial,
    }


def rebuild_receipts(given: Json, output: Json, made_with: Json) -> Json:
    identities = [Identity(bytes.fromhex(seed)) for seed in made_with["seeds"]]
    by_key = {identity.public_key: identity for identity in identities}
    opened = [receipts.open_receipt(from_base64(r), *by_key) for r in given["receipts"]]
    made = [receipts.sign_receipt(by_key[r.relayer], r) for r in opened if r.relayer is not None]
    return {"receipts": [to_base64(receipt) for receipt in made]}


def do_checkpoint(given: Json) -> Json:
    relayers = [parse_public_key(key) for key in given["relayers"]]
    opened = receipts.open_checkpoint(from_base64(given["object"]), *relayers)
    if account_text(opened.account) != given["account"]:  # the relayer reads its own, by account
        raise CryptoError("another account's object")
    members = {
        "relayer": objects.claimed(from_base64(given["object"]), "relayer"),
        "account": account_text(opened.account),
        "seq": opened.seq,
        "head": opened.head.hex(),
        "grant_serial": opened.grant_serial,
        "time": opened.time_ms,
    }
    return {"members": members}


def rebuild_checkpoint(given: Json, output: Json, made_with: Json) -> Json:
    m = output["members"]
    checkpoint = receipts.Checkpoint(
        account=parse_account(m["account"]),
        seq=m["seq"],
        head=bytes.fromhex(m["head"]),
        grant_serial=m["grant_serial"],
        time_ms=m["time"],
    )
    signed = receipts.sign_checkpoint(Identity(bytes.fromhex(made_with["seed"])), checkpoint)
    return {"object": to_base64(signed)}


def do_succession(given: Json) -> Json:
    named = [from_base64(signed) for signed in given["objects"]]
    keys = succession.keys_of(named, parse_public_key(given["last"]))
    return {"keys": [key.hex() for key in keys]}


def do_chain(given: Json) -> Json:
    chain = grants.Chain(AccountId(bytes.fromhex(given["account"][2:])))
    for signed in given["succession"]:
        chain.learn(from_base64(signed))
    for signed in given["objects"]:
        chain = chain.copy()
        chain.add(grants.parse_any(from_base64(signed)))
    live = {
        key: [g.serial for g in chain.live(parse_public_key(key), given["now"])]
        for key in given["about"]
    }
    return {"serial": chain.serial, "live": live}


def do_epochs(given: Json) -> Json:
    chain = grants.Chain(AccountId(bytes.fromhex(given["account"][2:])))
    for signed in given["objects"]:
        chain.add(grants.parse_any(from_base64(signed)))
    live = chain.live(parse_public_key(given["about"]), given["now"])
    return {"oldest": grants.oldest_epoch(live)}


def do_unlock(given: Json) -> Json:
    secrets = [bytes.fromhex(secret) for secret in given["unlock_secrets"]]
    keys = [
        unlock.UnlockKey(secret, bindings.crypto_scalarmult_base(secret), 2**62)
        for secret in secrets
    ]
    opened = unlock.open_unlock(
        given["header"],
        unlock_keys={key.kid: key for key in keys},
        relayer=parse_public_key(given["relayer"]),
        account=parse_account(given["account"]),
        sender=parse_public_key(given["sender"]),
        now_ms=given["now"],
    )
    return {
        "iat": opened.issued_ms,
        "hold": opened.hold_s,
        "keys": [
            {"ns": key.namespace, "epoch": key.epoch, "key": to_base64(key.key)}
            for key in opened.keys
        ],
    }


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
    "envelope": rebuild_envelope,
    "index-record": rebuild_index_record,
    "object": rebuild_object,
    "grant": rebuild_grant,
    "revocation": rebuild_revocation,
    "join": rebuild_join,
    "statement": rebuild_statement,
    "receipts": rebuild_receipts,
    "checkpoint": rebuild_checkpoint,
}
