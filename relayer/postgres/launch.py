"""Executable step between the relayer and a PostgreSQL program: drop rights, detach, exec.

It does not decide anything: which account, which program and whether a capability is kept come
from its callers. It runs as a program of its own (`python -I -S launch.py JSON`) because changing
credentials between fork and exec inside a threaded interpreter is unsafe, and it imports the
standard library only, so that it starts in a few milliseconds.

- All rights of root are gone before the exec, with `no_new_privs` set. At most CAP_DAC_READ_SEARCH
  stays, as an *ambient* capability: without it the dropped account could not walk to binaries or
  to a data folder below a folder that only root may enter, and ordinary capabilities are lost
  both when the user id changes and at the exec.
- No core file is ever written: the limit is 0 and the dump filter is empty.
- A detached program is a session leader and no child of the caller: the terminal's Ctrl-C and the
  caller's death do not reach it.
"""

import ctypes
import json
import os
import resource
import struct
import sys
from typing import Any

CAP_DAC_READ_SEARCH = 2

_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522

EXIT_CAPABILITY = 3  # the capability that was asked for cannot be kept here
EXIT_LAUNCH = 4  # anything else that went wrong before the exec


class _CapabilityMissing(OSError):
    pass


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _prctl(libc: Any, option: int, *arguments: int) -> None:
    # The variadic arguments are read as unsigned long; ctypes would pass 32-bit integers.
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _call(libc.prctl, option, *(ctypes.c_ulong(argument) for argument in padded))


def _set_capabilities(libc: Any, mask: int) -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    data = ctypes.create_string_buffer(struct.pack("=6I", mask, mask, mask, 0, 0, 0))
    _call(libc.capset, header, data)


def _become(uid: int, gid: int, *, keep_read_search: bool) -> None:
    """Give up root for good; optionally keep CAP_DAC_READ_SEARCH across the coming exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if keep_read_search:
            # The change of user keeps the capabilities, and access(2), by which initdb looks for
            # its companion, heeds them afterwards; all others are given up in the next steps.
            _prctl(libc, _PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
    except OSError as error:
        raise _CapabilityMissing(error.errno, error.strerror) from error
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        _set_capabilities(libc, 1 << CAP_DAC_READ_SEARCH if keep_read_search else 0)
        if keep_read_search:
            _prctl(libc, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH)
    except OSError as error:
        raise _CapabilityMissing(error.errno, error.strerror) from error
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)


def _forbid_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        # A core pattern that pipes into a program ignores a limit of 0; the filter it obeys.
        with open("/proc/self/coredump_filter", "w") as filter_file:
            filter_file.write("0")
    except OSError:
        pass  # the kernel was built without the filter; the limit stands


def _detach(log: int) -> None:
    """Return in a session leader adopted by init, with both outputs appended to the log file."""
    null = os.open(os.devnull, os.O_RDONLY)
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def main() -> None:
    """Runs `command` of the JSON object in the first argument; never returns."""
    order = json.loads(sys.argv[1])
    try:
        os.umask(0o077)
        _forbid_core_files()
        os.chdir("/")  # the caller's working folder may be closed to the account, or go away
        # Opened before the drop: the folder of the log is closed to the account.
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND) if order["log"] else None
        if order["uid"] is not None:
            _become(order["uid"], order["gid"], keep_read_search=order["keep_read_search"])
        if log is not None:
            _detach(log)
        os.execve(order["command"][0], order["command"], order["environment"])  # noqa: S606
    except _CapabilityMissing as error:
        print(error.strerror, file=sys.stderr)
        sys.exit(EXIT_CAPABILITY)
    except OSError as error:
        print(f"{order['command'][0]}: {error.strerror}", file=sys.stderr)
        sys.exit(EXIT_LAUNCH)


if __name__ == "__main__":
    main()
