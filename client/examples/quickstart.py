"""Remember a few things, and find one again by its meaning."""

import asyncio

from memrelay import MemoryClient


async def main() -> None:
    async with MemoryClient.from_profile() as memory:
        stored = await memory.remember_many(
            [
                "Anna prefers green tea over coffee.",
                {"text": "The staging server moved to Frankfurt.", "kind": "event"},
                {"text": "Backups run at two in the morning.", "tags": ["operations"]},
            ]
        )
        # A memory is durable and found by its words at once; by its meaning when it is "done".
        await memory.wait([one.id for one in stored])

        found = await memory.recall("What does Anna like to drink?", limit=1)
        for one in found.results:
            print(one.text)


if __name__ == "__main__":
    asyncio.run(main())
