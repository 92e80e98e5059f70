"""Note what was done, and read the newest notes back: memory in a script without asyncio.

python standup.py "Moved staging to Frankfurt."
python standup.py
"""

import sys

from memrelay import MemrelayError, SyncMemoryClient

NAMESPACE = "standup"


def main() -> int:
    try:
        with SyncMemoryClient.from_profile() as memory:
            if note := " ".join(sys.argv[1:]):
                memory.remember(note, namespace=NAMESPACE, kind="event")
            for entry in memory.list(namespace=NAMESPACE, limit=5).memories:
                print(f"{entry.created_at:%Y-%m-%d}  {entry.text}")
    except MemrelayError as error:
        # Its message says what to do, and never holds a memory or a key.
        print(f"standup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
