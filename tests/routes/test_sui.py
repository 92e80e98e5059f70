"""The blockchain stand-in: byte-exact answers, and session headers as the real client makes them.

Not here: its use by the real client (`test_memwal.py`).
"""

import base64
import json
import time
from typing import Any

import pytest
from litestar.types import ASGIApp
from memwal import utils as memwal

from relayer.app import build_app
from relayer.http import sui
from relayer.sealed.keys import Identity, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.memwal_session import IDENTITY, NOW_MS, session
from tests.signing import Signer, client_of

OBJECT = "0x" + "ab" * 32
PACKAGE = {
    "objectId": OBJECT,
    "version": "1",
    "digest": "11111111111111111111111111111111",
    "type": "package",
    "owner": "Immutable",
}


@pytest.fixture
def app(storage: Storage, settings: Settings) -> ASGIApp:
    return build_app(storage, settings)


# "This package object has version 1"


async def test_json_rpc_says_byte_for_byte_what_clients_read(app: ASGIApp) -> None:
    asked = {"jsonrpc": "2.0", "id": 7, "method": "sui_getObject", "params": [OBJECT, {}]}
    async with client_of(app) as client:
        answer = await client.post("/sui", json=asked)
    assert answer.status_code == 200
    assert answer.content == (
        b'{"jsonrpc":"2.0","id":7,"result":{"data":{"objectId":"' + OBJECT.encode() + b'",'
        b'"version":"1","digest":"11111111111111111111111111111111","type":"package",'
        b'"owner":"Immutable"}}}'
    )


def test_json_rpc_answers_several_objects_in_order() -> None:
    params = [[OBJECT, sui.PACKAGE_ID], {"showType": False}]
    answer = sui.json_rpc({"id": "x", "method": "sui_multiGetObjects", "params": params})
    assert answer == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": [{"data": PACKAGE}, {"data": PACKAGE | {"objectId": sui.PACKAGE_ID}}],
    }


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (None, -32600),
        ([], -32600),
        ("sui_getObject", -32600),
        ({}, -32601),
        ({"id": 1, "method": "sui_getCheckpoint", "params": []}, -32601),
        ({"id": 1, "method": "sui_getObject"}, -32601),
        ({"id": 1, "method": "sui_getObject", "params": []}, -32601),
        ({"id": 1, "method": "sui_getObject", "params": {"id": OBJECT}}, -32601),
        ({"id": 1, "method": "sui_getObject", "params": [OBJECT + "0"]}, -32601),
        ({"id": 1, "method": "sui_getObject", "params": ["<script>"]}, -32601),
        ({"id": 1, "method": "sui_multiGetObjects", "params": [OBJECT]}, -32601),
        ({"id": 1, "method": "sui_multiGetObjects", "params": [[OBJECT] * 51]}, -32601),
        ({"id": 1, "method": 5, "params": [OBJECT]}, -32601),
    ],
)
def test_json_rpc_refuses_everything_else(request_: Any, code: int) -> None:
    answer = sui.json_rpc(request_)
    assert answer["error"]["code"] == code
    assert "result" not in answer


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10_000, b'{"id":NaN}'])
async def test_json_rpc_survives_what_is_not_json(app: ASGIApp, body: bytes) -> None:
    async with client_of(app) as client:
        answer = await client.post("/sui", content=body)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32600


GRPC_OBJECT = (
    b"\x12\x42" + OBJECT.encode() + b"\x18\x01"  # 2: id, 3: version 1
    b"\x22\x20" + b"1" * 32 + b"\x32\x07package"  # 4: digest, 6: type
)  # 113 bytes
GRPC_RESULT = b"\x0a\x73\x0a\x71" + GRPC_OBJECT  # 1: result {1: object}
TRAILER = b"\x80\x00\x00\x00\x10grpc-status: 0\r\n"


async def test_grpc_web_says_byte_for_byte_what_clients_read(app: ASGIApp) -> None:
    asked = b"\x0a\x44\x0a\x42" + OBJECT.encode()  # 1: {1: id}
    framed = base64.b64encode(b"\x00" + len(asked).to_bytes(4, "big") + asked)
    async with client_of(app) as client:
        answer = await client.post(
            "/sui/sui.rpc.v2.LedgerService/BatchGetObjects",
            content=framed,
            headers={"content-type": "application/grpc-web-text"},
        )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/grpc-web-text"
    assert base64.b64decode(answer.content, validate=True) == (
        b"\x00\x00\x00\x00\x75" + GRPC_RESULT + TRAILER
    )


def test_grpc_web_answers_several_objects_with_longer_lengths() -> None:
    asked = (OBJECT + "\n" + OBJECT).encode()
    answer = base64.b64decode(sui.grpc_web_objects(base64.b64encode(asked)))
    assert answer == b"\x00\x00\x00\x00\xea" + GRPC_RESULT * 2 + TRAILER


@pytest.mark.parametrize("body", [b"", b"not base64!", base64.b64encode(b"nothing"), b"\xff\xfe"])
def test_grpc_web_speaks_of_the_package_when_it_cannot_tell(body: bytes) -> None:
    answer = base64.b64decode(sui.grpc_web_objects(body))
    assert sui.PACKAGE_ID.encode() in answer
    assert answer.endswith(TRAILER)


# Session headers


def other_signature(**changes: Any) -> str:
    made: str = json.loads(base64.b64decode(session(**changes)))["personalMessageSignature"]
    return made


@pytest.mark.parametrize("age_ms", [0, 1, 5 * 60_000, 10 * 60_000, -300_000])
def test_a_live_session_of_the_requests_own_key_passes(age_ms: int) -> None:
    sui.verify_session(session(), IDENTITY.public_key, NOW_MS + age_ms)


@pytest.mark.parametrize("age_ms", [10 * 60_000 + 1, -300_001, 10**12])
def test_an_expired_or_future_session_is_refused(age_ms: int) -> None:
    with pytest.raises(CryptoError, match="expired"):
        sui.verify_session(session(), IDENTITY.public_key, NOW_MS + age_ms)


def test_another_keys_session_is_refused() -> None:
    other = Identity(bytes(31) + b"\1")
    with pytest.raises(CryptoError, match="another key"):
        sui.verify_session(session(), other.public_key, NOW_MS)


OTHER = Identity(bytes(31) + b"\1")
SIGNATURE = base64.b64decode(other_signature())
CHARSET_ONLY = "suiprivkey1" + "b" * 59  # "b" is no bech32 character


@pytest.mark.parametrize(
    "changes",
    [
        {"creationTimeMs": None},
        {"creationTimeMs": str(NOW_MS)},
        {"creationTimeMs": True},
        {"creationTimeMs": float(NOW_MS)},
        {"ttlMin": None},
        {"ttlMin": 6},
        {"ttlMin": 5_000_000},
        {"packageId": "0x" + "00" * 32},
        {"address": None},
        {"address": "0x" + "00" * 32},
        {"personalMessageSignature": None},
        {"personalMessageSignature": 5},
        {"personalMessageSignature": "é"},
        {"personalMessageSignature": ""},
        {"personalMessageSignature": base64.b64encode(SIGNATURE[:96]).decode()},
        {"personalMessageSignature": base64.b64encode(b"\1" + SIGNATURE[1:]).decode()},
        {"personalMessageSignature": base64.b64encode(
            SIGNATURE[:65] + OTHER.public_key).decode()},
        {"personalMessageSignature": base64.b64encode(
            b"\0" + bytes(64) + SIGNATURE[65:]).decode()},
        {"personalMessageSignature": other_signature(creationTimeMs=NOW_MS - 2000)},
        {"sessionKey": None},
        {"sessionKey": ""},
        {"sessionKey": "suiprivkey1qqqq"},
        {"sessionKey": CHARSET_ONLY},
        {"sessionKey": "suiprivkey1" + "q" * 65},  # decodes to other than 33 bytes
        {"sessionKey": "suiprivkey1" + "p" * 59},  # decodes to another flag byte
        {"sessionKey": memwal.encode_sui_private_key(OTHER.seed)},
    ],
)  # fmt: skip
def test_a_bad_session_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CryptoError):
        sui.verify_session(session(**changes), IDENTITY.public_key, NOW_MS)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "not base64",
        "é",
        base64.b64encode(b"\xff\xfe").decode(),
        base64.b64encode(b"[]").decode(),
        base64.b64encode(b"[" * 3_000).decode(),
        base64.b64encode(b'{"creationTimeMs":' + b"9" * 2_900 + b"}").decode(),
        "A" * (sui.SESSION_CHARACTERS_MAX + 1),
    ],
    ids=str.__len__,
)
def test_a_malformed_session_header_is_refused(header: str) -> None:
    with pytest.raises(CryptoError):
        sui.verify_session(header, IDENTITY.public_key, NOW_MS)


def test_no_refusal_quotes_the_session() -> None:
    """The header carries a private key."""
    with pytest.raises(CryptoError) as caught:
        sui.verify_session(session(ttlMin=6), PublicKey(IDENTITY.public_key), NOW_MS)
    assert "suiprivkey" not in str(caught.value)


@pytest.mark.parametrize(("age_s", "status"), [(0, 200), (3600, 401)])
async def test_the_guard_refuses_expired_sessions(
    app: ASGIApp, managed: NewKey, age_s: int, status: int
) -> None:
    header = session(managed.identity, creationTimeMs=int((time.time() - age_s) * 1000))
    signer = Signer(identity=managed.identity, headers={"x-seal-session": header})
    async with client_of(app, signer) as client:
        answer = await client.get("/v1/keys")
    assert answer.status_code == status
    assert header not in answer.text
