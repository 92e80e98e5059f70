"""Begins a worker: `python -m relayer.workers LINE SOCKET…`, by number.

Not here: what it does (`worker.py`), who starts it (`supervisor.py`).
"""

import os

from relayer.process import pause_collection
from relayer.telemetry.preallocation import preallocate

if __name__ == "__main__":
    preallocate(os.environ)
    with pause_collection():
        from relayer.workers.worker import main  # the library that counts looks at the room

    main()
