"""What the vectors are about: the example account of SPEC §1 and one function a chapter.

It does not own files (`generate_vectors.py`) or formulas (`reference.py`). Every scenario that must
fail differs from one that must pass in a single thing, which its name says.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from nacl import bindings

from tests import reference as ref

Json = dict[str, Any]

NOW = 1_780_000_000_000
FOUNDER = ref.Signer(bytes(range(32)))
ROOT = ref.Root(bytes(range(32, 64)))
AGENT = ref.Signer(bytes(range(64, 96)))
RELAYER = ref.Signer(bytes(range(96, 128)))
SECOND, THIRD, FOURTH, FIFTH, STRANGER = (
    ref.Signer(ref.drawn(f"identity {name}"))
    for name in ("second", "third", "fourth", "fifth", "stranger")
)
ACCOUNT = ref.account_of(FOUNDER.public)
OTHER_ACCOUNT = ref.account_of(STRANGER.public)
TEAM = ROOT.namespace(ACCOUNT, "team")
NOTES = ROOT.namespace(ACCOUNT, "notes")
MEMORY = UUID("0b5e9f3c-2d1a-4c8b-9e7f-112233445566")
TEXT = "Anna prefers tea."

# A point of order 8, so A + T lies outside the main subgroup: it verifies and does not convert.
TORSION = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
MIXED_ORDER = bindings.crypto_core_ed25519_add(AGENT.public, TORSION)
NON_CANONICAL_ONE = (2**255 - 19 + 1).to_bytes(32, "little")


@dataclass(frozen=True)
class Scenario:
    """One vector: what a reader gets, what it must say, and what the maker knew beside that."""

    name: str
    operation: str
    spec: str
    input: Json
    expect: str = "ok"
    output: Json = field(default_factory=dict)
    made_with: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        document: Json = {
            "operation": self.operation,
            "spec": self.spec,
            "input": self.input,
            "expect": self.expect,
        }
        if self.expect == "ok":
            document |= {"output": self.output, "made_with": self.made_with}
        return document


def macs() -> Iterator[Scenario]:
    cases: dict[str, tuple[int, str, list[bytes]]] = {
        "without-parts": (32, "seal", []),
        "one-empty-part": (32, "seal", [b""]),
        "empty-parts": (16, "parts", [b"", b"", b""]),
        "several-parts": (16, "parts", [b"one", b"", "zwölf".encode(), bytes(300)]),
        "8-bytes": (8, "parts", [b"one"]),
        "32-bytes-of-the-same": (32, "parts", [b"one"]),
    }
    for name, (size, label, parts) in cases.items():
        given = {"key": TEAM.key.hex(), "size": size, "label": label}
        given["parts"] = [part.hex() for part in parts]
        output = {"mac": ref.mac(size, TEAM.key, label, *parts).hex()}
        yield Scenario(f"mac-{name}", "mac", "§2", given, output=output)
    short = {"key": TEAM.key[1:].hex(), "size": 32, "label": "seal", "parts": []}
    yield Scenario("mac-key-of-31-bytes", "mac", "§2", short, "length")


def keys() -> Iterator[Scenario]:
    for name, epoch, namespace in (("example", 1, "team"), ("epoch-2-umlaut", 2, "Küche")):
        root = ref.Root(ROOT.key, epoch)
        key = root.namespace(ACCOUNT, namespace)
        given = {"seed": FOUNDER.seed.hex(), "root": root.key.hex(), "epoch": epoch}
        given["namespace"] = namespace
        output = {
            "public_key": FOUNDER.hex,
            "exchange_public": FOUNDER.exchange_public.hex(),
            "exchange_secret": FOUNDER.exchange_secret.hex(),
            "account": ref.account_text(ACCOUNT),
            "root_id": ref.kdf(root.key, "root-id").hex(),
            "namespace_key": key.key.hex(),
            "key_id": key.key_id.hex(),
            **{label: ref.kdf(key.key, label).hex() for label in ref.SUBKEYS},
        }
        yield Scenario(f"keys-{name}", "keys", "§3", given, output=output)
    registrations = {
        "ok": AGENT.hex,
        "mixed-order": MIXED_ORDER.hex(),
        "order-8": TORSION.hex(),
        "order-1": (b"\1" + bytes(31)).hex(),
        "order-4": bytes(32).hex(),
        "non-canonical": NON_CANONICAL_ONE.hex(),
        "not-on-the-curve": (b"\2" + bytes(31)).hex(),
    }
    for name, key_hex in registrations.items():
        output = {"exchange_public": AGENT.exchange_public.hex()}
        expect = "ok" if name == "ok" else "public_key"
        yield Scenario(
            f"public-key-{name}", "public-key", "§3", {"public_key": key_hex}, expect, output
        )
    for name, text in (("upper-case", AGENT.hex.upper()), ("short", AGENT.hex[2:])):
        given = {"public_key": text}
        yield Scenario(f"public-key-{name}", "public-key", "§3", given, "hex")


def names() -> Iterator[Scenario]:
    accepted = {
        "plain": "team",
        "stripped": "  team ",
        "decomposed": "Ku\u0308che",
        "inner-spaces": "my  team",
        "inner-no-break-space": "my\u00a0team",
        "case-is-kept": "Team",
        "128-code-points": "\U0001f375" * 128,
        "129-before-composition": "u\u0308" + "a" * 127,
        "slash-and-dots": "../team",
        "combining-mark-after-a-space": " \u0308x",
        "joiner-in-persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "joiner-behind-a-virama": "\u0915\u094d\u200d\u0937",
        "joiner-before-a-virama": "\u09b0\u200d\u09cd\u09af\u09be\u09ac",
        "joiner-in-sinhala": "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
        "picture": "\U0001f375 \u2764",
    }
    for name, text in accepted.items():
        output = {"namespace": unicodedata.normalize("NFC", text).strip(" ")}
        yield Scenario(f"name-{name}", "namespace", "§3", {"name": text}, output=output)
    refused = {
        "empty": "",
        "only-spaces": "   ",
        "129-code-points": "a" * 129,
        "tab": "my\tteam",
        "newline-at-the-end": "team\n",
        "nul": "team\0",
        "delete": "team\x7f",
        "next-line": "my\u0085team",
        "lone-surrogate": "team\ud800",
        "unassigned": "team\U000e0fff",
        "not-a-character": "team\uffff",
        "line-separator": "my\u2028team",
        "paragraph-separator": "my\u2029team",
        "override": "team\u202emaet",
        "embedding": "\u202ateam",
        "isolate": "team\u2066",
        "pop-isolate": "te\u2069am",
        "zero-width-space": "te\u200bam",
        "zero-width-space-alone": "\u200b",
        "word-joiner": "team\u2060",
        "byte-order-mark": "\ufeffteam",
        "soft-hyphen": "te\u00adam",
        "right-to-left-mark": "team\u200f",
        "arabic-letter-mark": "\u061c\u0645",
        "tags": "team\U000e0041",
        "variation-selector": "\u2764\ufe0f",
        "variation-selector-beyond-the-first-plane": "\u8fbb\U000e0100",
        "selector-of-mongolian": "\u1820\u180b\u1820",
        "grapheme-joiner": "te\u034fam",
        "filler-of-hangul": "\u3164",
        "filler-of-half-width-hangul": "team\uffa0",
        "blank-of-braille": "\u2800",
        "invisible-times": "a\u2062b",
        "annotation": "\ufff9team\ufffb",
        "joiner-in-latin": "te\u200dam",
        "joiner-between-pictures": "\U0001f469\u200d\U0001f467",
        "joiner-between-digits": "\u0661\u200c\u0662",
        "joiner-in-front": "\u200d\u0937",
        "joiner-at-the-end": "\u0645\u06cc\u200c",
        "joiner-before-a-space": "\u0645\u200c \u0645",
        "joiners-in-a-row": "\u0915\u094d\u200d\u200d\u0937",
        "no-break-space-at-an-end": "team\u00a0",
        "ideographic-space-in-front": " \u3000team",
        "space-behind-a-space": "team\u2003 ",
    }
    for name, text in refused.items():
        yield Scenario(f"name-refused-{name}", "namespace", "§3", {"name": text}, "namespace")


def _envelope(
    name: str,
    expect: str = "ok",
    *,
    key: ref.NamespaceKey = TEAM,
    row: Json | None = None,
    **how: Any,
) -> Scenario:
    """An envelope made as `how` says and opened as the row of the example with `row` says."""
    record = how.pop("record", TEXT.encode())
    plaintext = how.pop("plaintext", None) or ref.padded(record)
    nonce = ref.drawn(f"nonce {name}", 24)
    cut, flip = how.pop("cut", None), how.pop("flip", None)
    made = {"type": 1, "account": ACCOUNT, "memory": MEMORY, "revision": 1, **how}
    stored = bytearray(ref.envelope(key, plaintext, created=NOW, nonce=nonce, **made)[:cut])
    if flip is not None:
        stored[flip] ^= 1
    given = {
        "namespace": TEAM.name,
        "epoch": TEAM.epoch,
        "namespace_key": TEAM.key.hex(),
        "type": 1,
        "account": ref.account_text(ACCOUNT),
        "memory": str(MEMORY),
        "revision": 1,
        **({"type": made["type"]} if expect == "ok" else {}),
        **(row or {}),
        "envelope": ref.b64(bytes(stored)),
    }
    output = {
        "record": ref.b64(record),
        "padded_bytes": len(plaintext),
        "created": NOW,
        "blob_id": ref.b64url(ref.hash_256(bytes(stored))),
    }
    return Scenario(
        f"envelope-{name}", "envelope", "§7", given, expect, output, {"nonce": nonce.hex()}
    )


def envelopes() -> Iterator[Scenario]:
    yield _envelope("memory")
    yield _envelope("episode", type=2)
    yield _envelope("summary", type=3)
    for size in (0, 252, 253, 5000):
        yield _envelope(f"{size}-bytes", record=bytes(n % 251 for n in range(size)))
    yield _envelope("version-0", "version", start=(0, 1, 0))
    yield _envelope("version-2", "version", start=(2, 1, 0))
    yield _envelope("suite-2", "version", start=(1, 2, 0))
    yield _envelope("fourth-byte-1", "version", start=(1, 1, 1))
    yield _envelope("another-type", "row", type=2)
    yield _envelope("another-account", "row", account=OTHER_ACCOUNT)
    yield _envelope("another-memory", "row", memory=UUID(int=MEMORY.int ^ 1))
    yield _envelope("older-revision", "row", row={"revision": 2})
    yield _envelope("another-epoch", "key", key=ref.NamespaceKey(TEAM.key, "team", 2))
    yield _envelope("another-namespace", "key", key=NOTES)
    yield _envelope("created-altered", "decryption", flip=15)
    yield _envelope("nonce-altered", "decryption", flip=100)
    yield _envelope("ciphertext-altered", "decryption", flip=124)
    yield _envelope("tag-altered", "decryption", flip=-1)
    yield _envelope("tag-cut", "decryption", record=bytes(253), cut=-1)
    yield _envelope("too-short", "length", cut=395)
    yield _envelope("header-only", "length", cut=124)
    plain = ref.padded(TEXT.encode())
    yield _envelope("padding-not-zero", "padding", plaintext=plain[:-1] + b"\1")
    yield _envelope("length-beyond-the-end", "padding", plaintext=ref.u32(253) + plain[4:])


def indexes() -> Iterator[Scenario]:
    given: Json = {"namespace": "team", "epoch": 1, "namespace_key": TEAM.key.hex()}
    index, marks = ref.kdf(TEAM.key, "index"), ref.kdf(TEAM.key, "idempotency")
    tokens = {
        "word": ("w", "remember"),
        "tag": ("t", "remember"),
        "source": ("s", "https://example.org/tee"),
        "metadata": ("m", "room\0Küche"),
        "empty": ("w", ""),
    }
    for name, (kind, term) in tokens.items():
        digest = ref.mac(8, index, "token", kind.encode(), term.encode())
        output = {"token": int.from_bytes(digest, "big", signed=True)}
        yield Scenario(
            f"token-{name}", "token", "§8", {**given, "field": kind, "term": term}, output=output
        )
    facts = {
        "example": ("fact", None, TEXT, TEXT),
        "white-space": ("fact", None, " Anna \t prefers\n\ntea. ", TEXT),
        "decomposed": ("fact", None, "Ku\u0308che", "K\u00fcche"),
        "event-time": ("event", NOW, TEXT, TEXT),
        "case-counts": ("fact", None, TEXT.upper(), TEXT.upper()),
    }
    for name, (kind, at, text, normal) in facts.items():
        when = "" if at is None else str(at)
        parts = (kind.encode(), when.encode(), normal.encode())
        digest = ref.mac(16, ref.kdf(TEAM.key, "fingerprint"), "fact", *parts)
        yield Scenario(
            f"fingerprint-{name}",
            "fingerprint",
            "§8",
            {**given, "kind": kind, "event_time": at, "text": text},
            output={"fingerprint": digest.hex()},
        )
    for name, item, key in (
        ("single", 0, "retry-1"),
        ("bulk-item-19", 19, "retry-1"),
        ("empty", 0, ""),
    ):
        route = "/v1/remember"
        named = (AGENT.public, route.encode(), ref.u32(item), key.encode())
        yield Scenario(
            f"idempotency-{name}",
            "idempotency",
            "§8",
            {**given, "writer": AGENT.hex, "route": route, "item": item, "key": key, "text": TEXT},
            output={
                "mark": ref.mac(16, marks, "key", *named).hex(),
                "text_mark": ref.mac(16, marks, "text", TEXT.encode()).hex(),
            },
        )
    lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 25, 32, 33, 1000]
    rounded = [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 16, 16, 24, 24, 32, 32, 48, 1024]
    yield Scenario(
        "lengths", "lengths", "§8", {"words": [0, *lengths]}, output={"rounded": [1, *rounded]}
    )


def _index_record(
    name: str,
    expect: str = "ok",
    *,
    plaintext: bytes | None = None,
    key: ref.NamespaceKey = TEAM,
    row: Json | None = None,
    flip: int | None = None,
    version: int = 1,
    **held: Any,
) -> Scenario:
    """An index record; `row` is what the row says where it says something else."""
    record: Json = {
        "length": 3,
        "source": None,
        "postings": {5293496355168704132: 1, -7: 15},
        "vectors": [[127, -3, 0, 64]],
        **held,
    }
    nonce = ref.drawn(f"index record {name}", 24)
    made = plaintext or ref.padded(ref.index_record(**record), 128)
    place: Json = {"account": ACCOUNT, "memory": MEMORY, "revision": 2}
    stored = bytearray(ref.sealed_index_record(key, made, nonce=nonce, version=version, **place))
    if flip is not None:
        stored[flip] ^= 1
    given = {
        "namespace": TEAM.name,
        "epoch": TEAM.epoch,
        "namespace_key": TEAM.key.hex(),
        "account": ref.account_text(ACCOUNT),
        "memory": str(MEMORY),
        "revision": 2,
        **(row or {}),
        "record": ref.b64(bytes(stored)),
    }
    tokens = sorted(record["postings"].items())
    # As text: not every reader of JSON has whole numbers of 64 bits.
    source = None if record["source"] is None else str(record["source"])
    postings = [[str(token), count] for token, count in tokens]
    output = {**record, "source": source, "postings": postings, "padded_bytes": len(made)}
    made_with = {"nonce": nonce.hex()}
    return Scenario(
        f"index-record-{name}", "index-record", "§8.1", given, expect, output, made_with
    )


def index_records() -> Iterator[Scenario]:
    yield _index_record("example")
    yield _index_record("source", source=-9, postings={-9: 1})
    yield _index_record("nothing", length=1, postings={}, vectors=[])
    yield _index_record("two-passages", vectors=[[127, 0], [-127, 1]])
    for count in (10, 11):  # on either side of a step
        tokens = {token * 2**40: 1 + token % 15 for token in range(count)}
        yield _index_record(f"{count}-words", postings=tokens, vectors=[[1]])
    yield _index_record("version-2", "version", version=2)
    yield _index_record("another-memory", "decryption", row={"memory": str(UUID(int=7))})
    yield _index_record("another-revision", "decryption", row={"revision": 1})
    another = {"account": ref.account_text(OTHER_ACCOUNT)}
    yield _index_record("another-account", "decryption", row=another)
    yield _index_record("another-namespace", "decryption", key=NOTES)
    yield _index_record("nonce-altered", "decryption", flip=1)
    yield _index_record("ciphertext-altered", "decryption", flip=25)
    yield _index_record("tag-altered", "decryption", flip=-1)
    plain = ref.index_record(3, None, {1: 1}, [[1, 2]])
    yield _index_record(
        "padding-not-zero", "padding", plaintext=ref.padded(plain, 128)[:-1] + b"\1"
    )
    yield _index_record("padded-like-an-envelope", "padding", plaintext=ref.padded(plain))
    yield _index_record("cut", "no_record", plaintext=ref.padded(plain[:-1], 128))
    yield _index_record("too-long", "no_record", plaintext=ref.padded(plain + b"\0", 128))
    yield _index_record("no-head", "no_record", plaintext=ref.padded(plain[:14], 128))
    beyond = plain[:11] + ref.u32(2**32 - 1) + plain[15:]
    yield _index_record("more-words-than-bytes", "no_record", plaintext=ref.padded(beyond, 128))


def turns() -> Iterator[Scenario]:
    for size in (1, 2, 6, 300, 384, 1024, 1536):
        yield _turn(f"turn-{size}", [n + 1 for n in range(size)])
    yield _turn("turn-sparse", [0] * 299 + [-7])


def _turn(name: str, vector: Sequence[int]) -> Scenario:
    seed, turned = ref.turn_vector(TEAM, "test-model", vector)
    given = {"namespace": "team", "epoch": 1, "namespace_key": TEAM.key.hex()}
    rule = {"size": len(vector), "first": vector[0], "step": 1}
    if name == "turn-sparse":
        rule = {"size": len(vector), "first": 0, "step": 0, "last": vector[-1]}
    output = {
        "seed": seed.hex(),
        "first": [round(x, 8) for x in turned[:8]],
        "every_64th": [round(x, 8) for x in turned[::64]],
        "weighted_sum": round(sum((n + 1) * x for n, x in enumerate(turned)) / len(turned), 8),
    }
    given |= {"model": "test-model", "vector": rule}
    return Scenario(name, "turn", "§9", given, output=output)


def requests() -> Iterator[Scenario]:
    account = ref.account_text(ACCOUNT)
    nonce = "4f8c2e1a-9b7d-4c3e-8f6a-0123456789ab"
    cases: dict[str, tuple[str, str, bytes, str, str]] = {
        "post": ("POST", "/v1/remember", b'{"text":"Anna prefers tea."}', nonce, account),
        "get-with-query": ("GET", "/v1/memories?namespace=team&limit=5", b"", nonce, account),
        "without-account": ("POST", "/api/recall", b"{}", nonce, ""),
        "upper-case-nonce": ("GET", "/v1/stats?namespace=K%C3%BCche", b"", nonce.upper(), account),
    }
    for name, (method, target, body, number, account_id) in cases.items():
        given = {"seed": AGENT.seed.hex(), "timestamp": NOW // 1000, "method": method}
        given |= {"target": target, "body": ref.b64(body)}
        given |= {"nonce": number, "account_id": account_id}
        text = ref.request_text(
            timestamp=NOW // 1000,
            method=method,
            target=target,
            body=body,
            nonce=number,
            account_id=account_id,
        )
        output = {"text": text, "public_key": AGENT.hex}
        output["signature"] = AGENT.sign(text.encode()).hex()
        yield Scenario(f"request-{name}", "request", "§5", given, output=output)
