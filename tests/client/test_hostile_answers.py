"""What a hostile or broken relayer answers ends with the client's own word, and ends.

Not here: whatever chance finds (`tests/fuzz/parsers/answers.py`), what is signed and false
(`test_client_session_trust.py`, `test_verify.py`).
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import httpx
import pytest

from memrelay import MemoryClient, SyncMemoryClient, events, exchange
from memrelay.answers import JSON_DEPTH_MAX, read_json_object
from memrelay.archive_writer import Standing
from memrelay.cli import EXIT_FAILED, main
from memrelay.doctor.refusals import Inquiry
from memrelay.errors import (
    Invalid,
    MemrelayError,
    ServerError,
    TimedOut,
    TransportError,
    UntrustedRelayer,
    server_error,
)
from memrelay.events import EVENT_BYTES_MAX, EventReader
from memrelay.evidence import Evidence
from memrelay.exchange import Incoming, Received
from memrelay.models import Memory, Usage
from memrelay.sealed.envelope import MEMORY, Address, blob_id, seal_envelope
from memrelay.sealed.objects import to_base64
from tests import hostile
from tests.fuzz.parsers.answers import AT, ID, OPERATIONS, RICH

OTHER = "1b5e9f3c-2d1a-4c8b-9e7f-112233445566"


def told(*answers: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(answer).encode() for answer in answers]


def refused(operation: hostile.Asked, *answers: Mapping[str, Any]) -> MemrelayError:
    """The error of an operation that is answered so, in the words of the client."""
    with pytest.raises(MemrelayError) as caught:
        hostile.asked(operation, told(*answers))
    assert isinstance(caught.value, ServerError | UntrustedRelayer)
    return caught.value


class TestJson:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"{",
            b'{"a": NaN}',
            b'{"a": -Infinity}',
            b'{"a": 1e999}',
            b'{"a": "\\ud800"}',
            b'{"\\uDFff": 1}',
            b'{"a": "\xed\xa0\x80"}',
            b'{"a": "\xff"}',
            '{"a": 1}'.encode("utf-16"),
            b'{"a": ' + b"9" * 5_000 + b"}",
            b'{"a": ' + b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX + b"}",
            b'{"a": [], "b": [{}, ' + b'{"":[' * 15 + b"{}" + b"]}" * 15 + b', "x"]}',
            b"[" * 100_000,
            b'{"a":' * 100_000,
        ],
    )
    def test_what_is_no_json_object_is_refused(self, data: bytes) -> None:
        with pytest.raises(ServerError) as caught:
            read_json_object(data)
        assert caught.value.code == "answer.malformed"

    def test_the_deepest_there_may_be_is_read(self) -> None:
        data = b'{"a": [], "b": [{}, ' + b'{"":[' * 15 + b"]}" * 15 + b', "x"]}'
        assert read_json_object(data) == json.loads(data)

    def test_whole_characters_and_numbers_are_read(self) -> None:
        data = b'{"a": "\\ud83d\\ude00 \\u0000", "b": [1.5, -0.0, 12345678901234567890]}'
        assert read_json_object(data) == {"a": "😀 \0", "b": [1.5, -0.0, 12345678901234567890]}

    @pytest.mark.parametrize("count", [2**53, -(2**53), 10**400])
    def test_numbers_that_nothing_counts_to_are_refused(self, count: int) -> None:
        for kind, name in ((Usage, "memory_count"), (Memory, "distance")):
            good = {"memory_count": 1, "storage_bytes": 1, "id": ID, "namespace": "a", "text": "b"}
            with pytest.raises(ServerError):
                kind.from_json({**good, name: count})

    @pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
    def test_moments_that_no_other_time_zone_has_are_refused(self, moment: str) -> None:
        """They come to no place where they are shown in another one."""
        with pytest.raises(ServerError):
            Memory.from_json({"id": ID, "namespace": "a", "text": "b", "created_at": moment})

    def test_the_last_day_there_is_is_read(self) -> None:
        """Whoever wants a key for ever says so."""
        moment = "9999-12-31T00:00:00Z"
        read = Memory.from_json({"id": ID, "namespace": "a", "text": "b", "created_at": moment})
        assert read.to_json()["created_at"] == "9999-12-31T00:00:00.000Z"

    @pytest.mark.parametrize("said", [[[["x"]]], {"a": 1}, 5, True, None, "", "\x1b[2J" * 10_000])
    def test_errors_hold_a_line_of_text_whatever_is_said(self, said: object) -> None:
        body = {"message": said, "code": said, "request_id": said, "error": said}
        error = server_error(500, body, {})
        assert len(str(error)) < 1_000
        assert str(error).isprintable()


class TestOperations:
    """Each operation with an answer that is of another shape somewhere."""

    @pytest.mark.parametrize("name", sorted(OPERATIONS))
    def test_no_shape_of_an_answer_is_a_bug(self, name: str) -> None:
        good = name not in {"grants", "statement"}
        members = [*RICH, "receipt", "receipts", "other_receipts", "grants", "statement"]
        for member, value in product(members, (None, [7])):
            answer = {**RICH, "receipts": [], member: value}
            try:
                hostile.plain(hostile.asked(OPERATIONS[name], told(answer), good=good))
            except (ServerError, UntrustedRelayer, hostile.Gone):
                continue

    @pytest.mark.parametrize(
        ("name", "changed"),
        [
            ("status", {"results": {"id": ID}}),
            ("namespaces", {"namespaces": [{"name": 5}]}),
            ("keys", {"keys": ["a"]}),
            ("receipts", {"receipts": [], "seq": "1"}),
            ("receipts", {"receipts": 5}),
            ("verify", {"receipts": [], "items": [{}]}),
            ("verify", {"receipts": [], "items": [{**RICH["items"][0], "id": "urn:uuid:" + ID}]}),
            ("verify", {"receipts": [], "items": [{**RICH["items"][0], "size": -1}]}),
            ("verify", {"receipts": [], "blobs": [{"blob_id": blob_id(b"x")}]}),
            ("verify", {"receipts": [], "head": []}),
            ("remember", {"receipt": 5}),
            ("remember_many", {"results": {}}),
            ("export_page", {"records": [5]}),
            ("export_page", {"next": 5}),
            ("import_page", {"receipts": None}),
            ("import_page", {"receipts": [], "results": [{"id": ID}]}),
            ("webhooks", {"webhooks": [{}]}),
            ("rotation", {"namespaces": [{"name": "a"}]}),
        ],
    )
    def test_a_missing_or_wrong_member_is_named(self, name: str, changed: Any) -> None:
        error = refused(OPERATIONS[name], {**RICH, "receipts": [], **changed})
        assert isinstance(error, ServerError)
        assert error.code == "answer.malformed"

    def test_what_is_not_base64_is_the_relayers_fault(self) -> None:
        blob = {"blob_id": blob_id(b"x"), "data": "!", "problem": None}
        answers: dict[str, dict[str, Any]] = {
            "verify": {"receipts": [], "blobs": [blob]},
            "receipts": {"receipts": ["!"]},
            "checkpoint": {"checkpoint": "!"},
        }
        for name, changed in answers.items():
            assert isinstance(refused(OPERATIONS[name], {**RICH, **changed}), UntrustedRelayer)

    def test_a_namespace_that_can_be_none_gets_no_key(self) -> None:
        names = [{"name": "\u202e", "total": 1, "done": 0, "remaining": 1}]
        for operation in (lambda c: c.rotation(lend=True), lambda c: c.get(ID)):
            answer = {**RICH, "remaining": 1, "namespaces": names}
            with pytest.raises(UntrustedRelayer) as caught:
                hostile.asked(operation, told(answer), custody="sealed")
            assert caught.value.code == "namespace"

    def test_a_name_that_was_not_asked_for_is_no_blob(self) -> None:
        """Else others, ever new ones, would be asked for and kept without end."""
        elsewhere = {"blob_id": blob_id(b"y"), "data": "eA==", "problem": None}
        found = hostile.asked(
            OPERATIONS["verify"], told({**RICH, "receipts": [], "blobs": [elsewhere]})
        )
        assert [one.found for one in found.findings if one.what == "blob"] == ["missing"]

    def test_what_is_sealed_and_no_record_is_found(self) -> None:
        """A writer sealed it: JSON so deep that reading it would not end well."""
        for record in (b'{"a":' * 100_000, b"[]", b'{"ns": 5}', b"{}"):
            key = hostile.ROOT.namespace_key(hostile.ACCOUNT, "team")
            address = Address(MEMORY, hostile.ACCOUNT, UUID(ID), 1)
            data = seal_envelope(address, key, record, created_ms=hostile.NOW_MS)
            item = {**RICH["items"][0], "blob_id": blob_id(data), "size": len(data)}
            blob = {"blob_id": blob_id(data), "data": to_base64(data), "problem": None}
            answer = {**RICH, "receipts": [], "items": [item], "blobs": [blob]}
            found = hostile.asked(OPERATIONS["verify"], told(answer))
            assert ("sealed", "no record inside") in {(f.what, f.found) for f in found.findings}
            assert not found.ok


class TestEndless:
    """An answer that there is more is believed as long as something came of asking."""

    @pytest.mark.parametrize(
        ("name", "member"),
        [
            ("consolidation", "next_cursor"),
            ("export_page", "next"),
            ("history", "next_cursor"),
            ("verify", "next_cursor"),
        ],
    )
    def test_a_page_that_leads_to_itself_is_refused(self, name: str, member: str) -> None:
        assert "cursor" in str(refused(OPERATIONS[name], {**RICH, "receipts": [], member: "1"}))

    @pytest.mark.parametrize(
        ("name", "changed"),
        [
            ("forget_namespace", {"matched": 5, "erased": 0}),
            ("set_ttl", {"changed": 0}),
            ("undo_consolidation", {"undone": 0, "skipped": 0}),
        ],
    )
    def test_more_after_nothing_is_refused(self, name: str, changed: Mapping[str, int]) -> None:
        error = refused(OPERATIONS[name], {**RICH, "receipts": [], "more": True, **changed})
        assert isinstance(error, ServerError)
        assert error.code == "answer.malformed"

    def test_states_of_others_do_not_end_waiting_and_are_not_kept(self) -> None:
        results = {"results": [{"id": OTHER, "status": "done"}]}
        with pytest.raises(TransportError):
            hostile.asked(OPERATIONS["wait"], told({**RICH, **results}))


class TestArchiving:
    """What a relayer gives for an export is looked at before it is written down."""

    MEMORY: ClassVar = {
        "record": "memory", "id": ID, "revision_of": None, "type": 1, "format": "sealed",
        "namespace": "team", "epoch": 1, "seq": 1, "revision": 1, "superseded_at": None,
        "review": None, "expires_at": None, "blob_id": "n", "blob": None,
    }  # fmt: skip

    ACCOUNT: ClassVar = {
        "record": "account", "relayer": hostile.RELAYER.public_key.hex(), "succession": [],
        "receipt_seq": 0, "memory_seq": 0, "label": "anna",
    }  # fmt: skip

    def begun(self) -> Standing:
        relayer = hostile.RELAYER.public_key
        standing = Standing(Evidence(account=hostile.ACCOUNT, relayer=relayer))
        standing.take(self.ACCOUNT)
        return standing

    def test_what_holds_is_taken(self) -> None:
        standing = self.begun()
        standing.take(self.MEMORY)
        standing.take({"record": "receipt", "seq": 1, "object": hostile.receipt(op="state")})
        assert (len(standing.losses), standing.receipt_seq) == (1, 1)

    @pytest.mark.parametrize("name", sorted(MEMORY.keys() - {"record"}))
    def test_a_memory_without_what_it_is_read_by_is_refused(self, name: str) -> None:
        with pytest.raises(Invalid):
            self.begun().take({key: value for key, value in self.MEMORY.items() if key != name})

    @pytest.mark.parametrize(
        "record",
        [
            {"record": "memory"},
            {**MEMORY, "id": ID.upper()},
            {"record": "account", "receipt_seq": "1"},
            {"record": "tombstone", "id": ID},
            {"record": "tombstone", "id": [], "blob_ids": []},
            {"record": "receipt", "seq": 1},
            {"record": "receipt", "seq": 1, "object": "!"},
            {"record": "receipt", "seq": 1, "object": ""},
            {"record": "receipt", "seq": 1, "object": to_base64(b"{}" + bytes(64))},
            {"record": "receipt", "seq": 1, "object": hostile.receipt(op="state", items=[[[]]])},
            {"record": "receipt", "seq": 1, "object": hostile.receipt(op="state", items=[5])},
            {"record": "receipt", "seq": 1, "object": hostile.receipt(op="state", items=5)},
            {"record": "receipt", "seq": 2, "object": hostile.receipt(op="state")},
            {"record": "receipt", "seq": 2, "object": hostile.receipt(op="state", seq=2)},
        ],
        ids=lambda record: str(sorted(record)),
    )
    def test_a_record_that_is_none_is_refused(self, record: Mapping[str, Any]) -> None:
        with pytest.raises(Invalid):
            self.begun().take(record)


class TestStream:
    EVENT: ClassVar = {
        "id": "1", "type": "memory.written", "account_id": "0x", "time": AT, "namespace": None,
        "ids": [ID],
    }  # fmt: skip

    def read(self, data: bytes, size: int) -> tuple[EventReader, list[Any]]:
        reader = EventReader(None)
        reader.request()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        return reader, [event for piece in pieces for event in reader.read(piece)]

    @pytest.mark.parametrize("size", [1, 2, 7, 10_000])
    @pytest.mark.parametrize("line", [b"\n", b"\r\n"])
    def test_it_is_read_alike_in_whatever_pieces(self, size: int, line: bytes) -> None:
        """Also where a text has what other readers take for the end of a line."""
        event = {**self.EVENT, "namespace": "a\u2028b\x85é"}
        told_ = f"data: {json.dumps(event, ensure_ascii=False)}".encode()
        data = line.join([b": beat", b"", b"id: 3", told_, b"", b"id: 4", told_, b""])
        reader, found = self.read(data + line, size)
        assert [one.namespace for one in found] == [event["namespace"]] * 2
        assert reader.place == "4"

    @pytest.mark.parametrize("line", [b"data: x", b"data:\n", b"data: [\n", b": beat", b"id: 1"])
    def test_an_event_without_end_is_refused(self, line: bytes) -> None:
        with pytest.raises(ServerError) as caught:
            self.read(line * (2 * EVENT_BYTES_MAX // len(line) + 1), 65_536)
        assert caught.value.code == "answer.malformed"

    @pytest.mark.parametrize("place", [b"9" * 17, b"9" * 5_000, b"-1", "٣".encode(), b"1.5"])
    def test_a_place_that_is_none_is_left(self, place: bytes) -> None:
        reader, found = self.read(b"id: " + place + b"\n\n", 100)
        assert (reader.place, found) == (None, [])

    @pytest.mark.parametrize("data", [b"{}", b"[" * 50_000, b'{"id": NaN}', b"\xff", b"5"])
    def test_an_event_that_is_none_is_refused(self, data: bytes) -> None:
        with pytest.raises(ServerError) as caught:
            self.read(b"data: " + data + b"\n\n", 65_536)
        assert caught.value.code == "answer.malformed"


class TestIncoming:
    """The body of an answer, as it comes in."""

    def incoming(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        left_s: float = 1.0,
        bytes_max: int = 2**20,
    ) -> Incoming:
        request = httpx.Request("GET", "https://memory.example")
        response = httpx.Response(200, headers=headers, request=request)
        return Incoming(response, left_s=lambda: left_s, bytes_max=bytes_max)

    def test_its_pieces_are_put_together(self) -> None:
        incoming = self.incoming()
        for piece in (b"{", b"", b"}"):
            incoming.take(piece)
        assert incoming.whole().content == b"{}"

    def test_its_status_and_headers_are_kept(self) -> None:
        whole = self.incoming({"Retry-After": "3"}).whole()
        assert (whole.status_code, whole.headers.get("retry-after")) == (200, "3")

    @pytest.mark.parametrize("status", [199, 200, 299, 300, 404])
    def test_what_succeeded_is_what_httpx_says(self, status: int) -> None:
        assert Received(status, {}, b"").is_success == httpx.Response(status).is_success

    def test_one_without_end_is_refused(self) -> None:
        incoming = self.incoming(bytes_max=10)
        incoming.take(b"x" * 10)
        with pytest.raises(httpx.RemoteProtocolError):
            incoming.take(b"x")

    def test_one_that_takes_too_long_is_refused(self) -> None:
        incoming = self.incoming(left_s=-1.0)
        incoming.take(b"x" * (exchange.SLOWEST_BYTES_S + 1))  # a long one may take longer
        late = self.incoming(left_s=-1.0)
        with pytest.raises(httpx.ReadTimeout):
            late.take(b"x" * (exchange.SLOWEST_BYTES_S - 1))

    @pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "x"])
    def test_one_that_is_compressed_is_refused(self, coding: str) -> None:
        with pytest.raises(httpx.DecodingError):
            self.incoming({"content-encoding": coding})


@contextmanager
def answering(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of what says this to each that connects, until the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller, suppress(OSError):
                    caller.recv(65_536)
                    say(caller)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
SQUEEZED = gzip.compress(b" " * 2**24)


def without_end(caller: socket.socket) -> None:
    caller.sendall(HEAD + b"\r\n")
    while True:
        caller.sendall(b" " * 65_536)


def squeezed(caller: socket.socket) -> None:
    head = HEAD + b"content-encoding: gzip\r\n" + f"content-length: {len(SQUEEZED)}".encode()
    caller.sendall(head + b"\r\n\r\n" + SQUEEZED)


def too_deep(caller: socket.socket) -> None:
    caller.sendall(HEAD + b"connection: close\r\n\r\n" + b"[" * 100_000)


DRIPS = 60


def dripping(caller: socket.socket, told: bytes, rest: bytes) -> None:
    """Say a byte at a time, each of them in time, and at last all that was asked for."""
    caller.sendall(told)
    for _ in range(DRIPS):
        time.sleep(0.05)
        caller.sendall(b"x")
    caller.sendall(rest)


def dripping_head(caller: socket.socket) -> None:
    dripping(caller, HEAD + b"x: ", b"\r\ncontent-length: 2\r\n\r\n{}")


def dripping_trailer(caller: socket.socket) -> None:
    head = HEAD + b"transfer-encoding: chunked\r\n\r\n"
    dripping(caller, head + b"2\r\n{}\r\n0\r\nx: ", b"\r\n\r\n")


def babbling(caller: socket.socket, said: list[int] | None = None) -> None:
    """Say that there is nothing to say yet, much and in time, and at last what was asked for."""
    for count in range(DRIPS):
        time.sleep(0.05)
        if said is not None:
            said.append(count)
        caller.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000)
    caller.sendall(HEAD + b"content-length: 2\r\n\r\n{}")


def with_a_cookie(caller: socket.socket) -> None:
    caller.sendall(HEAD + b"set-cookie: a=b; path=/\r\ncontent-length: 2\r\n\r\n{}")


BODIES = (without_end, squeezed, too_deep)


@pytest.fixture
def options() -> dict[str, Any]:
    """What a client is made of that meets such a relayer and asks once."""
    return {
        "account_id": "0x" + hostile.ACCOUNT.hex(),
        "private_key": hostile.FOUNDER.seed_hex(),
        "attempts_max": 1,
    }


class TestHowMuchIsRead:
    """Of each answer so much as it can need: what is read holds up the whole process."""

    def asked(self, bytes_max: int, answer: Mapping[str, Any]) -> SyncMemoryClient:
        """A client whose relayer says this, and then blanks up to so many bytes and one more."""
        data = json.dumps(answer).encode()
        data += b" " * (bytes_max + 1 - len(data))
        return SyncMemoryClient(
            url="https://memory.example",
            account_id="0x" + hostile.ACCOUNT.hex(),
            private_key=hostile.FOUNDER.seed_hex(),
            custody="managed",
            attempts_max=1,
            transport=httpx.MockTransport(lambda request: httpx.Response(200, content=data)),
        )

    def test_an_answer_that_can_be_short_may_not_be_long(self) -> None:
        with self.asked(exchange.ANSWER_BYTES_MAX, {}) as client:
            for ask in (client.health, client.stats, client.namespaces, client.usage):
                with pytest.raises(TransportError):
                    ask()
            with pytest.raises(TransportError):
                client.get(ID)
            with pytest.raises(TransportError):
                client.recall("tea", limit=5)

    def test_many_memories_and_all_keys_may_be_long(self) -> None:
        page: Mapping[str, Any] = {
            "memories": [],
            "next_cursor": None,
            "results": [],
            "total": 0,
            "keys": [],
        }
        with self.asked(exchange.ANSWER_BYTES_MAX, page) as client:
            assert client.list(limit=100).memories == ()
            assert client.review().memories == ()
            assert client.recall("tea", limit=100).results == ()
            assert client.keys() == ()

    @pytest.mark.parametrize(("count", "mib"), [(-1, 16), (8, 16), (20, 40), (200, 256)])
    def test_memories_have_a_bound_by_their_number(self, count: int, mib: int) -> None:
        assert exchange.memories_bytes_max(count) == mib * 2**20


class TestOverTheWire:
    @pytest.mark.parametrize("say", BODIES)
    def test_the_blocking_client_ends(self, say: Any, options: dict[str, Any]) -> None:
        with answering(say) as url, SyncMemoryClient(url=url, **options) as client:
            with pytest.raises((TransportError, ServerError)):
                client.health()
            with pytest.raises((TransportError, ServerError)):
                list(client.events(follow=False))

    @pytest.mark.parametrize("say", BODIES)
    async def test_the_other_one_ends(self, say: Any, options: dict[str, Any]) -> None:
        with answering(say) as url:
            async with MemoryClient(url=url, **options) as client:
                with pytest.raises((TransportError, ServerError)):
                    await client.health()
                with pytest.raises((TransportError, ServerError)):
                    [event async for event in client.events(follow=False)]

    @pytest.mark.parametrize("say", [dripping_head, dripping_trailer])
    async def test_an_answer_that_drips_in_is_not_waited_for(
        self, say: Any, options: dict[str, Any]
    ) -> None:
        with answering(say) as url:
            with SyncMemoryClient(url=url, timeout_s=0.5, **options) as blocking:
                with pytest.raises(TimedOut):
                    blocking.health()
                inquiry = Inquiry(blocking.settings, timeout_s=0.5)
            with pytest.raises(httpx.ReadTimeout):
                inquiry.get("/health")
            inquiry.close()
            async with MemoryClient(url=url, timeout_s=0.5, **options) as client:
                with pytest.raises(TimedOut):
                    await client.health()

    @staticmethod
    def times_out(client: SyncMemoryClient) -> None:
        with pytest.raises(TimedOut):
            client.health()

    def test_what_comes_before_an_answer_brings_no_more_time(self, options: dict[str, Any]) -> None:
        said: list[int] = []

        def say(caller: socket.socket) -> None:
            babbling(caller, said)

        options["timeout_s"] = 0.5
        with answering(say) as url, SyncMemoryClient(url=url, **options) as client:
            self.times_out(client)
        assert len(said) < DRIPS

    @pytest.mark.parametrize("say", [dripping_head, babbling])
    async def test_a_stream_that_does_not_begin_is_not_waited_for(
        self, say: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "READ_S", 0.5)
        with answering(say) as url:
            with SyncMemoryClient(url=url, **options) as blocking, pytest.raises(TimedOut):
                list(blocking.events(follow=False))
            async with MemoryClient(url=url, **options) as client:
                with pytest.raises(TimedOut):
                    [event async for event in client.events(follow=False)]

    async def test_no_client_keeps_a_cookie(self, options: dict[str, Any]) -> None:
        """They would never be sent, and one that is set with each answer would fill the memory."""
        with answering(with_a_cookie) as url:
            with SyncMemoryClient(url=url, **options) as blocking:
                assert blocking.health() == {}
                assert not blocking._http.cookies
            async with MemoryClient(url=url, **options) as client:
                assert await client.health() == {}
                assert not client._http.cookies

    def test_the_command_says_so_in_a_line(
        self, options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with answering(too_deep) as url:
            environ = {
                "XDG_CONFIG_HOME": str(tmp_path),
                "MEMRELAY_URL": url,
                "MEMRELAY_ACCOUNT_ID": options["account_id"],
                "MEMRELAY_PRIVATE_KEY": options["private_key"],
            }
            code = main(["recall", "tea"], environ)
        assert code == EXIT_FAILED
        assert capsys.readouterr().err.count("\n") == 1

    def test_an_examination_ends_as_well(self, options: dict[str, Any]) -> None:
        with answering(without_end) as url, SyncMemoryClient(url=url, **options) as client:
            inquiry = Inquiry(client.settings)
            with pytest.raises(httpx.HTTPError):
                inquiry.get("/health")
            inquiry.close()
