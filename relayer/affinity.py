"""Affinity: requests of an account with a large index go to one of several serving processes.

Not here: which indexes are large (`memory_index`), who makes the channels (`workers`).

- Each process would hold the index again. So a connection whose request names such an account is
  handed over, with the bytes that were read of it, to the process at that account's place.
- Nothing depends on it: what cannot be handed over is answered where it came in.
- The account is the one that the request claims. Whoever receives it checks it as any other.
"""

import array
import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

MESSAGE_BYTES_MAX: Final = 2**17  # of what was read; a channel holds one such at least
PINNED_MAX: Final = 10_000  # accounts
_HEAD_END: Final = b"\r\n\r\n"
_ACCOUNT: Final = re.compile(rb"\r\nx-account-id:[ \t]*0x([0-9a-f]{64})[ \t]*\r\n", re.IGNORECASE)
_PIN: Final = b"A"  # what follows is an account
_CONNECTION: Final = b"C"  # what follows was read of the connection that comes with it


def place_of(account: bytes, places: int) -> int:
    """Return at which of so many places an account is answered once its index is large."""
    return int.from_bytes(account[:8], "big") % places


class Affinity:
    """One process's part: the accounts that are pinned to a place, and the channels to the others.

    `channels` are sockets of whole messages (SOCK_SEQPACKET), one a place, to write to; `own` is
    where this process, at `place`, reads. Without channels everything is answered here.
    """

    def __init__(
        self,
        place: int = 0,
        channels: Sequence[socket.socket] = (),
        own: socket.socket | None = None,
    ) -> None:
        self._place = place
        self._channels = channels
        self._own = own
        self._present: Collection[int] = range(len(channels))
        self._pinned = dict[bytes, None]()  # the oldest first
        self._make: Callable[[bytes], asyncio.Protocol] | None = None
        self._entering: set[asyncio.Task[None]] = set()

    def set_present(self, places: Collection[int]) -> None:
        """Note at which places a process answers."""
        self._present = places

    def is_elsewhere(self, account: bytes) -> bool:
        """Return true if another process, which is there, answers for this account."""
        if account not in self._pinned:
            return False
        place = place_of(account, len(self._channels))
        return place != self._place and place in self._present

    def pin(self, account: bytes) -> None:
        """Have an account answered at its place from now on, and tell the other processes."""
        if self._channels and account not in self._pinned:
            self._note(account)
            for place, channel in enumerate(self._channels):
                if place != self._place:
                    _send(channel, _PIN + account)

    def hand_over(self, data: bytes, connection: Any) -> bool:
        """Hand over a connection whose next request begins with this data; false if it stays here.

        `connection` is a socket, or has the number of one. The caller closes its own end.
        """
        if not self._pinned or len(data) > MESSAGE_BYTES_MAX:
            return False
        end = data.find(_HEAD_END)
        found = _ACCOUNT.search(data, 0, end + 2) if end >= 0 else None
        if found is None or not self.is_elsewhere(account := bytes.fromhex(found[1].decode())):
            return False
        channel = self._channels[place_of(account, len(self._channels))]
        return _send(channel, _CONNECTION + data, connection.fileno())

    def receive(self, make: Callable[[bytes], asyncio.Protocol]) -> None:
        """Take connections that others hand over; `make` returns what serves one, from its data."""
        if self._own is not None:
            self._make = make
            self._own.setblocking(False)
            asyncio.get_running_loop().add_reader(self._own.fileno(), self._read)

    async def close(self) -> None:
        """Take nothing more; return when what was taken is served."""
        if self._own is not None and self._make is not None:
            asyncio.get_running_loop().remove_reader(self._own.fileno())
            self._make = None
        if self._entering:
            await asyncio.wait(self._entering)

    def _note(self, account: bytes) -> None:
        self._pinned[account] = None
        if len(self._pinned) > PINNED_MAX:
            del self._pinned[next(iter(self._pinned))]

    def _read(self) -> None:
        assert self._own is not None
        assert self._make is not None
        try:
            message, numbers, flags, _ = socket.recv_fds(self._own, MESSAGE_BYTES_MAX + 1, 1)
        except OSError:  # the process that takes this one's place was faster
            return
        connections = [socket.socket(fileno=number) for number in numbers]
        if message[:1] == _PIN and not connections:
            self._note(message[1:])
        elif message[:1] == _CONNECTION and connections and not flags & socket.MSG_TRUNC:
            task = asyncio.create_task(self._enter(self._make, connections.pop(), message[1:]))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)
        for connection in connections:
            connection.close()

    async def _enter(
        self, make: Callable[[bytes], asyncio.Protocol], connection: socket.socket, data: bytes
    ) -> None:
        with contextlib.suppress(OSError):  # it is gone
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: make(data), connection)
            return
        connection.close()


def _send(channel: socket.socket, message: bytes, *numbers: int) -> bool:
    """Send one whole message, perhaps with a file's number; false if there is no room for it."""
    with_it = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers))] if numbers else []
    try:  # `socket.send_fds` passes no flags on
        channel.sendmsg([message], with_it, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


ALONE: Final = Affinity()
