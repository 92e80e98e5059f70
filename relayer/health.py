"""Whether the relayer of a data folder answers, for whoever supervises it.

Not here: what is wrong if it does not (`upkeep/doctor.py`), or when it is healthy (`routes/`).

- `python -m relayer.health` says it by its exit code, and imports next to nothing: a container asks
  every half minute.
"""

import json
import os
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

from relayer.run_file import running_url

TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 64 * 2**10


def ask(data_dir: Path) -> dict[str, Any]:
    """What `GET /health` of the relayer that serves this folder answers.

    Raises:
        OSError: none serves it, or it does not answer well; the message says which.
    """
    url = running_url(data_dir)
    if url is None:
        raise OSError(f"no relayer serves {data_dir.absolute()}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/health", timeout=TIMEOUT_S) as answer:
            told = json.loads(answer.read(_ANSWER_BYTES_MAX))
    except (ValueError, HTTPException, HTTPError):
        told = None
    except OSError as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise OSError(f"the relayer at {url} does not answer: {reason}") from None
    if not isinstance(told, dict) or told.get("status") != "ok":
        raise OSError(f"what answers at {url} is no healthy relayer")
    return told


def main() -> None:
    """Exit with 0 if the relayer of `RELAYER_DATA_DIR` answers, else with 1."""
    try:
        ask(Path(os.environ.get("RELAYER_DATA_DIR") or "data"))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
