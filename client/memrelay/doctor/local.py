"""The check of a relayer of this machine that is started when it is needed.

It does not own starting it (`memrelay.local_relayer`), or what it answers (`relayer.py`).
"""

import shlex

from memrelay.doctor.case import Case
from memrelay.doctor.findings import Verdict, problem
from memrelay.errors import ConfigError, NotStarted, TransportError
from memrelay.local_relayer import SOCKET, LocalRelayer
from memrelay.unix_sockets import parse_socket

START_S_MAX = 75.0  # a relayer gives its database 60


def find_local_problem(case: Case) -> Verdict | None:
    """Start the relayer of this machine, if the profile names one that may be started.

    Returns None if it listens, or if the profile names a relayer by http.
    """
    socket = parse_socket(case.settings.url)
    if socket is None:
        return None
    relayer = LocalRelayer(socket)
    folder = shlex.quote(str(relayer.folder))
    try:
        if not relayer.answers():
            relayer.start(timeout_s=START_S_MAX)
    except ConfigError as error:  # its folder, its files, or no program
        return problem(str(error), f"ls -la {folder}")
    except NotStarted as error:
        moved = case.local("local use FOLDER")
        return problem(str(error), relayer.examination() if relayer.folder.exists() else moved)
    except TransportError:
        served = shlex.quote(str(socket))
        detail = f"Nobody listens at {socket}, and no command here starts that relayer."
        if socket.name == SOCKET and (relayer.folder / "relayer.key").exists():
            return problem(detail, case.local(f"local use {folder}"))
        return problem(detail, f"relayer serve --socket {served}")
    return None
