"""Affinity: an account with a large index is answered by one of several workers."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from relayer.affinity import MESSAGE_BYTES_MAX, PINNED_MAX, Affinity, place_of
from relayer.workers.lines import present_line, read_present
from tests.life import until
from tests.processes import (
    RunningRelayer,
    begun_by,
    client,
    create_account,
    running_relayer,
    workers_of,
)
from tests.traffic import lost_or_doubled, traffic

FIRST = bytes(31) + b"\x01"  # of two places, the first one's
SECOND = bytes(7) + b"\x01" + bytes(24)
SMALL = {
    "RELAYER_EMBEDDER": "none",
    "RELAYER_RATE_LIMIT": "off",
    "RELAYER_INDEX_MEMORY_BYTES": "200000",
}
MEMORIES = 100  # a sixteenth of that room, and more
CONNECTIONS = 8


def head(account: bytes, body: bytes = b"") -> bytes:
    """A request's head, and what came with it."""
    return (
        b"POST / HTTP/1.1\r\nHost: a\r\nX-Account-Id: 0x%s\r\n\r\n" % account.hex().encode() + body
    )


@pytest.fixture
def channels() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Two channels: where to read, where to write."""
    with ExitStack() as held:
        pairs = [socket.socketpair(type=socket.SOCK_SEQPACKET) for _ in range(2)]
        for pair in pairs:
            for one in pair:
                held.enter_context(one)
        yield pairs


@pytest.fixture
def first(channels: list[tuple[socket.socket, socket.socket]]) -> Affinity:
    """The process at the first place, which knows that both accounts are large."""
    affinity = Affinity(0, [theirs for _, theirs in channels], channels[0][0])
    affinity.pin(FIRST)
    affinity.pin(SECOND)
    for _ in range(2):
        channels[1][0].recv(64)
    return affinity


class TestMessages:
    def test_an_account_that_is_pinned_is_told_to_the_others_once(
        self, channels: list[tuple[socket.socket, socket.socket]]
    ) -> None:
        affinity = Affinity(0, [theirs for _, theirs in channels], channels[0][0])
        affinity.pin(SECOND)
        affinity.pin(SECOND)
        assert channels[1][0].recv(64) == b"A" + SECOND
        for ours, _ in channels:
            with pytest.raises(BlockingIOError):
                ours.recv(64, socket.MSG_DONTWAIT)
        assert affinity.is_elsewhere(SECOND)
        assert not affinity.is_elsewhere(FIRST)

    def test_what_was_read_goes_with_the_connection(
        self, first: Affinity, channels: list[tuple[socket.socket, socket.socket]]
    ) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert first.hand_over(data := head(SECOND, b"the body"), ours)
            message, [number], _, _ = socket.recv_fds(channels[1][0], 1000, 1)
            assert message == b"C" + data
            with socket.socket(fileno=number) as handed:
                handed.sendall(b"answer")
            assert theirs.recv(16) == b"answer"

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (head(FIRST), "it is this process's"),
            (head(bytes(32)[:-1] + b"\x07"), "its index is small"),
            (head(SECOND)[:-1], "its head is not whole"),
            (b"GET / HTTP/1.1\r\n\r\n" + head(SECOND), "it is in the body"),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "it names none"),
            (head(SECOND, bytes(MESSAGE_BYTES_MAX)), "it is too large"),
            (head(SECOND).replace(b"0x00", b"0x0"), "it is no account"),
        ],
    )
    def test_what_stays(self, first: Affinity, data: bytes, why: str) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert not first.hand_over(data, ours), why

    def test_the_largest_message_is_taken_whole(
        self, first: Affinity, channels: list[tuple[socket.socket, socket.socket]]
    ) -> None:
        data = head(SECOND)
        data += bytes(MESSAGE_BYTES_MAX - len(data))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert first.hand_over(data, ours)
            message, [number], flags, _ = socket.recv_fds(channels[1][0], MESSAGE_BYTES_MAX + 1, 1)
            os.close(number)
            assert message == b"C" + data
            assert not flags & socket.MSG_TRUNC

    def test_a_full_channel_takes_no_more(self, first: Affinity) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            taken = 0
            while first.hand_over(head(SECOND, bytes(60_000)), ours):
                taken += 1
                assert taken < 100
            assert taken

    def test_where_nobody_answers_nothing_is_handed(self, first: Affinity) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            first.set_present({0})
            assert not first.is_elsewhere(SECOND)
            assert not first.hand_over(head(SECOND), ours)
            first.set_present(read_present(present_line({1, 0})))
            assert first.is_elsewhere(SECOND)

    def test_the_oldest_are_forgotten(
        self, channels: list[tuple[socket.socket, socket.socket]]
    ) -> None:
        alone = Affinity(0, [channels[0][1]])  # which never sends to itself
        for n in range(PINNED_MAX + 1):
            alone.pin(n.to_bytes(32, "big"))
        assert len(alone._pinned) == PINNED_MAX  # nobody else tells

    def test_one_process_alone_hands_nothing(self) -> None:
        alone = Affinity()
        alone.pin(SECOND)
        assert not alone.is_elsewhere(SECOND)

    def test_places_are_spread(self) -> None:
        accounts = [os.urandom(32) for _ in range(400)]
        at = [place_of(account, 4) for account in accounts]
        assert all(at.count(place) > 50 for place in range(4))

    async def test_what_is_no_message_is_closed(
        self, channels: list[tuple[socket.socket, socket.socket]]
    ) -> None:
        second = Affinity(1, [theirs for _, theirs in channels], channels[1][0])
        made: list[bytes] = []

        def serve(data: bytes) -> asyncio.Protocol:
            made.append(data)
            return asyncio.Protocol()

        second.receive(serve)
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(60)
            with theirs:
                for message in (b"?", b"A" + SECOND, b"C" + bytes(MESSAGE_BYTES_MAX + 1)):
                    await asyncio.to_thread(
                        socket.send_fds, channels[1][1], [message], [theirs.fileno()]
                    )
            assert await asyncio.to_thread(ours.recv, 1) == b"", "its last end is closed"
        await second.close()
        assert not made
        assert not second._pinned


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    """Two workers to whose room a few memories are many."""
    folder = tmp_path_factory.mktemp("crew")
    with running_relayer(folder, model_dir, "--workers", "2", **SMALL) as relayer:
        yield relayer


def _holders(relayer: RunningRelayer) -> dict[int, int]:
    """Count the connections that each worker holds."""
    port = urlsplit(relayer.url).port
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {
        f"socket:[{f[9]}]"
        for f in lines
        if f[3] == "01" and int(f[1].rpartition(":")[2], 16) == port
    }
    found = {}
    for pid in workers_of(relayer):
        names = [_name(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
        found[pid] = sum(name in inodes for name in names)
    return found


def _name(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


@pytest.mark.parametrize("custody", ["managed", "sealed"])
class TestWorkers:
    """One worker answers for an account with a large index, and any for the others."""

    def _account(self, crew: RunningRelayer, custody: str) -> dict[str, Any]:
        account = create_account(crew, custody)
        with client(account, crew.url) as memory:
            texts = [f"item{n} " + " ".join(f"w{n}x{m}" for m in range(5)) for n in range(MEMORIES)]
            for at in range(0, MEMORIES, 20):
                memory.remember_many(texts[at : at + 20])
        return account

    def _one_answers(self, crew: RunningRelayer, account: dict[str, Any]) -> int:
        """Ask until one worker holds every connection; return which."""

        def one() -> bool:
            with ExitStack() as held:
                for n in range(CONNECTIONS):
                    memory = held.enter_context(client(account, crew.url))
                    text = memory.recall(f"item{n}").results[0].text
                    assert text is not None
                    assert text.startswith(f"item{n} ")
                holders.update(_holders(crew))
            return sorted(holders.values()) == [0, CONNECTIONS]

        holders = dict[int, int]()
        until(one, "one answers for all")
        return max(holders, key=lambda pid: holders[pid])

    def test_a_large_index_is_answered_by_one(self, crew: RunningRelayer, custody: str) -> None:
        account = self._account(crew, custody)
        self._one_answers(crew, account)

    def test_others_answer_while_it_is_gone(self, crew: RunningRelayer, custody: str) -> None:
        account = self._account(crew, custody)
        pid, begun = self._one_answers(crew, account), begun_by(crew)
        with traffic(crew.url, {custody: account}) as going:
            going.goes_on()
            os.kill(pid, signal.SIGKILL)
            going.goes_on()
            until(lambda: begun_by(crew) > begun, "its place is filled")
            going.goes_on()
        assert lost_or_doubled(crew.url, account, going.acknowledged[custody]) == []
        assert self._one_answers(crew, account) != pid
