"""What is sealed or signed: strict JSON, envelopes, grants, other objects, unlock headers.

Not here: archives (`archives.py`).

- What a signature or a box would keep out is signed or sealed first: the payload is what is
  fuzzed, as somebody sends it who holds a key.
"""

import base64
from collections.abc import Iterator

from nacl import bindings

from memrelay.sealed import envelope as client_envelope
from memrelay.sealed import grants as client_grants
from memrelay.sealed import keys as client_keys
from memrelay.sealed import ledger, receipts, statement
from memrelay.sealed import objects as client_objects
from relayer.sealed import envelope, grants, objects, succession, unlock
from relayer.sealed import receipts as relayer_receipts
from tests import reference as ref
from tests import relayers_part, vector_client, vector_relayer
from tests.fuzz.loop import Parser
from tests.fuzz.parsers.agreement import REFUSED, Json, agreed, vectors

WORDS = (
    *(b'"v":1', b'"account":', b'"issuer":', b'"recipient":', b'"role":"owner"', b'"scope":['),
    *(b'"epoch":1', b'"keys":[', b'"ns":"team"', b'"expires":null', b'"serial":2', b"0x", b"null"),
    *(
        b'"custodian"',
        b'"reader"',
        b'"namespace":',
        b'"items":[',
        b"9007199254740991",
        b"1.0",
        b"-0",
    ),
)
FOUNDER = ref.Signer(bytes(range(32)))


def _json(data: bytes) -> object:
    return agreed(lambda: objects.strict_json(data), lambda: client_objects._strict(data))


def _json_seeds() -> Iterator[bytes]:
    for vector in vectors("grant"):
        yield base64.b64decode(vector["input"]["grant"])[:-64]
    yield b'{"a":[1,-1,0,null,true,"\\u00e9\\ud83d\\ude00",{"b":{"c":{"d":[]}}}]}'


JSON = Parser((objects, client_objects), _json_seeds, _json, WORDS)

_ENVELOPES = vectors("envelope", accepted=True)


def _envelope(data: bytes) -> object:
    """An envelope as it is, or a plaintext that is sealed as a good one is."""
    given = _ENVELOPES[0]["input"]
    key = vector_relayer.namespace_key(given)
    if data[:1] == b"\x00" and len(data) > 1:
        address = vector_relayer.address(given)
        good = envelope.seal(key, address, b"{}", created_ms=1, nonce=bytes(24))
        head = good[:124]
        data = head + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            data[1:], head, head[100:], key.seal
        )
    given = given | {"envelope": ref.b64(data)}
    return agreed(
        lambda: vector_relayer.do_envelope(given), lambda: vector_client.do_envelope(given)
    )


def _envelope_seeds() -> Iterator[bytes]:
    for vector in vectors("envelope"):
        yield base64.b64decode(vector["input"]["envelope"])
    for record in (b"{}", b"x" * 300):
        yield b"\x00" + envelope.pad(record)


ENVELOPE = Parser((envelope, client_envelope), _envelope_seeds, _envelope, (b"\0\0\0\1", b"\1\1"))

_RECIPIENT_SEED = vectors("grant", accepted=True)[0]["input"]["recipient_seed"]


def _grant(data: bytes) -> object:
    """A grant's payload, signed by the founder; then its box, too."""
    signed = FOUNDER.signed("grant", data)
    given = {"grant": ref.b64(signed), "recipient_seed": _RECIPIENT_SEED}
    found = agreed(lambda: _relayers_grant(signed), lambda: _clients_grant(signed))
    if found == REFUSED:
        return found
    return agreed(lambda: vector_relayer.do_grant(given), lambda: vector_client.do_grant(given))


def _relayers_grant(signed: bytes) -> object:
    g = grants.parse_grant(signed)
    return g.serial, g.role, g.issuer, g.recipient, len(g.scope), g.created_ms, g.expires_ms, g.box


def _clients_grant(signed: bytes) -> object:
    g = client_grants.read_grant(signed)
    client_keys.account_bytes(g.account)
    return g.serial, g.role, g.issuer, g.recipient, len(g.scope), g.created_ms, g.expires_ms, g.box


def _grant_seeds() -> Iterator[bytes]:
    for vector in vectors("grant"):
        yield base64.b64decode(vector["input"]["grant"])[:-64]


GRANT = Parser((grants, client_grants), _grant_seeds, _grant, WORDS)

# Operation of the vectors → what is signed, and the member of the input that holds it.
_KINDS = {
    "checkpoint": ("checkpoint", "object"),
    "join": ("join", "object"),
    "object": ("state", "object"),
    "receipts": ("receipt", "receipts"),
    "revocation": ("revoke", "object"),
}
_BASES = [vectors(operation, accepted=True)[0] for operation in sorted(_KINDS)]


def _object(data: bytes) -> object:
    """A payload, signed by whom its first byte says, as what that one signs."""
    base = _BASES[data[0] % len(_BASES)] if data else _BASES[0]
    operation = base["operation"]
    kind, member = _KINDS[operation]
    signed = ref.b64(_signer(base).signed(kind, data[1:]))
    given: Json = base["input"] | {member: [signed] if member == "receipts" else signed}
    read = f"do_{operation}"
    return agreed(
        lambda: getattr(vector_relayer, read)(given), lambda: getattr(vector_client, read)(given)
    )


def _signer(base: Json) -> ref.Signer:
    made = base["made_with"]
    return ref.Signer(bytes.fromhex(made["seed"] if "seed" in made else made["seeds"][0]))


def _object_seeds() -> Iterator[bytes]:
    for at, base in enumerate(_BASES):
        member = _KINDS[base["operation"]][1]
        for vector in vectors(base["operation"]):
            held = vector["input"][member]
            for signed in held[:1] if isinstance(held, list) else [held]:
                yield bytes([at]) + base64.b64decode(signed)[:-64]


OBJECTS = Parser(
    (objects, relayer_receipts, succession, ledger, receipts, statement, client_objects),
    _object_seeds,
    _object,
    WORDS,
)

_LENT = vectors("unlock", accepted=True)[0]


def _unlock(data: bytes) -> object:
    """A header as it is sent, or behind a zero byte a payload that is boxed as a good one is."""
    header = data.decode("latin-1")
    if data[:1] == b"\x00":
        made = _LENT["made_with"]
        secret, content = ref.Signer(bytes.fromhex(made["seed"])).exchange_secret, bytes(32)
        boxes = [
            ref.unlock_box(secret, bytes.fromhex(key), content, at)
            for at, key in enumerate(made["unlock_keys"])
        ]
        header = ref.b64url(ref.unlock_bytes(boxes, data[1:], content))
    given = _LENT["input"] | {"header": header}
    return agreed(lambda: vector_relayer.do_unlock(given), lambda: vector_client.do_unlock(given))


def _unlock_seeds() -> Iterator[bytes]:
    for vector in vectors("unlock"):
        yield vector["input"]["header"].encode("latin-1", "replace")
        payload = vector.get("made_with", {}).get("payload")
        if payload is not None:
            yield b"\x00" + payload.encode()


UNLOCK = Parser((unlock, relayers_part), _unlock_seeds, _unlock, WORDS)
