"""Begins a worker: `python -m relayer.workers LINE SOCKET…`, by number.

Not here: what it does (`worker.py`), who starts it (`supervisor.py`).
"""

import os

from relayer.process import loading
from relayer.telemetry.room import take_room

if __name__ == "__main__":
    take_room(os.environ)
    with loading():
        from relayer.workers.worker import main  # the library that counts looks at the room

    main()
