"""The end of a server of asyncio, which drops no connection that it has just accepted."""

import asyncio

_TURNS = 3  # of the loop, in which such a connection is set up, told of, and begun to be handled


async def close_server(server: asyncio.Server) -> None:
    """Close a server whose last connections are handled like all others.

    Of a server that is closed meanwhile, asyncio sets up none, and never closes their sockets.
    """
    for listening in server.sockets:
        server.get_loop().remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
