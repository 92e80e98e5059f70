"""The folder of the embedded PostgreSQL: its layout, its owner, its passwords and its creation.

It does not run the server (`relayer.postgres.embedded` does) and knows no table.

    <data_dir>/postgres/     0700, or 0710 for the server's own group when the relayer is root
        cluster/             0700, what initdb made; owned by the account the server runs as
        passwords.json       0600, one random password for each of the two roles
        postgres.log         0600
        socket/              0700, owned by the server's account
        *.lock               see `relayer.postgres.embedded`

- initdb insists on a *named* user. It runs as `nobody`, but in the group of the cluster and inside
  a folder only that group may enter, so that other processes of `nobody` can neither reach the
  files nor trace the program. The result is handed to the private uid and then renamed into place:
  a cluster exists completely or not at all.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from relayer.durable import replace, sync
from relayer.postgres.programs import (
    MAJOR_VERSION,
    Account,
    PostgresError,
    choose_account,
    find_binaries,
    find_uid,
    is_named,
    run_program,
)

ADMIN_ROLE = "postgres"
APP_ROLE = "memrelay"

# sockaddr_un holds 107 bytes and PostgreSQL appends its file name to the folder.
_SOCKET_FOLDER_BYTES_MAX = 107 - len("/.s.PGSQL.5432")


class Cluster:
    """One cluster below `data_dir`, used by relayer processes of one and the same user."""

    def __init__(self, *, data_dir: Path, runtime_dir: Path) -> None:
        # Resolved once: the path is part of the server's command line, by which it is recognised.
        self.home = data_dir.resolve() / "postgres"
        self.folder = self.home / "cluster"
        self._passwords = self.home / "passwords.json"
        self._runtime_dir = runtime_dir
        self._binaries = find_binaries()

    def prepare(self) -> None:
        """Create the home folder and check that this user may work in it."""
        try:
            # The home protects itself; root's data folder lets the server's account walk through.
            data_dir_mode = 0o711 if os.geteuid() == 0 else 0o700
            self.home.parent.mkdir(mode=data_dir_mode, parents=True, exist_ok=True)
            self.home.mkdir(mode=0o700, exist_ok=True)
            owner = self.home.stat().st_uid
        except OSError as error:
            raise PostgresError(f"cannot use {self.home}: {error.strerror}") from error
        if owner != os.geteuid():
            raise PostgresError(
                f"{self.home} belongs to uid {owner}, but this command runs as uid {os.geteuid()}: "
                "run it as the owner"
            )

    async def create(self, *, timeout_s: float) -> None:
        """Initialise the cluster unless it exists; the caller keeps other processes out.

        Raises: PostgresError.
        """
        if not self.folder.exists():
            await self._initialise(timeout_s=timeout_s)
        try:
            version = (self.folder / "PG_VERSION").read_text().strip()
        except OSError as error:
            raise PostgresError(
                f"{self.folder} is no PostgreSQL cluster ({error.strerror}): restore it from a "
                "backup or use another data folder"
            ) from error
        if version != str(MAJOR_VERSION):
            raise PostgresError(
                f"{self.folder} was made by PostgreSQL {version}, these programs are version "
                f"{MAJOR_VERSION}: dump the database with the old release and load it into a new "
                "data folder"
            )
        if os.geteuid() == 0:
            await asyncio.to_thread(self._settle_owner)

    def passwords(self) -> dict[str, str]:
        """Return the password of each role.

        Raises: PostgresError.
        """
        try:
            loaded = json.loads(self._passwords.read_text())
            return {role: str(loaded[role]) for role in (ADMIN_ROLE, APP_ROLE)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PostgresError(
                f"{self._passwords} is missing or damaged, without it the cluster beside it stays "
                "closed: restore the file from the backup of the data folder"
            ) from error

    def owner_uid(self) -> int:
        """Return the uid the server runs as."""
        return self.folder.stat().st_uid

    def create_socket_folder(self) -> Path:
        """Return a folder, 0700 and the server's own, whose path is short enough for a socket.

        With a long data folder it lies below the runtime folder. There another user may have
        taken the name: whatever is not exactly ours is left alone and a random name used, which
        works because other processes read the path from the running server's files.
        """
        inside = self.home / "socket"
        if _fits_socket(inside):
            inside.mkdir(mode=0o700, exist_ok=True)
            self._give_to_server(inside)
            inside.chmod(0o700)
            return inside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        folder = self._runtime_dir / f"memrelay-{digest}"
        if not _fits_socket(self._runtime_dir / "memrelay-0123456789abcdef"):
            raise PostgresError(
                f"the paths of the data folder and of {self._runtime_dir} are too long for a "
                "socket: use a shorter data folder"
            )
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._give_to_server(folder)
        if not self.is_private(folder):
            folder = Path(tempfile.mkdtemp(prefix="memrelay-", dir=self._runtime_dir))
            self._give_to_server(folder)
        return folder

    def is_private(self, folder: Path) -> bool:
        """Return true if it is a real folder of the server's account, closed to all others."""
        info = folder.lstat()
        closed = stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == 0o700
        return closed and info.st_uid == self.owner_uid()

    async def launch(
        self,
        settings: dict[str, str],
        *,
        socket_folder: Path,
        log: Path,
        lock: int,
        timeout_s: float,
    ) -> None:
        """Starts the server detached; it and its children hold the file descriptor `lock` open.

        Raises: PostgresError.
        """
        info = self.folder.stat()
        account = Account(uid=info.st_uid, gid=info.st_gid) if os.geteuid() == 0 else None
        command = [str(self._binaries / "postgres"), "-D", str(self.folder)]
        for name, value in {**settings, "unix_socket_directories": str(socket_folder)}.items():
            command += ["-c", f"{name}={value}"]
        await run_program(
            command,
            account=account,
            paths=(self.folder, socket_folder),
            log=log,
            lock=lock,
            timeout_s=timeout_s,
        )

    async def _initialise(self, *, timeout_s: float) -> None:
        for leftover in self.home.glob("init-*"):
            await asyncio.to_thread(shutil.rmtree, leftover, ignore_errors=True)
        if not self._passwords.exists():
            roles = {role: secrets.token_hex(32) for role in (ADMIN_ROLE, APP_ROLE)}
            replace(self._passwords, json.dumps(roles).encode())
        work = Path(tempfile.mkdtemp(prefix="init-", dir=self.home))
        try:
            await self._run_initdb(work, timeout_s=timeout_s)
            os.rename(work / "cluster", self.folder)
            sync(self.home)
        finally:
            await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)

    async def _run_initdb(self, work: Path, *, timeout_s: float) -> None:
        target, password_file = work / "cluster", work / "password"
        target.mkdir(mode=0o700)
        replace(password_file, self.passwords()[ADMIN_ROLE].encode())
        account = server = None
        if os.geteuid() == 0:
            server = choose_account()
            account = Account(uid=find_uid(), gid=server.gid)
            for folder in (self.home, work):
                _open_to_group(folder, server.gid)
            for path in (target, password_file):
                os.chown(path, account.uid, account.gid)
        elif not is_named(os.geteuid()):
            raise PostgresError(
                f"initdb refuses users without a name: give uid {os.geteuid()} an entry in "
                "/etc/passwd, or set RELAYER_DATABASE_URL to a PostgreSQL server elsewhere"
            )
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={target}",
            f"--username={ADMIN_ROLE}",
            f"--pwfile={password_file}",
            "--auth-local=scram-sha-256",
            "--auth-host=reject",
            "--encoding=UTF8",
            # PostgreSQL's own collation: sorts alike on every machine and survives a new libc.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--data-checksums",
            "--no-instructions",
        ]
        await run_program(command, account=account, paths=(target,), timeout_s=timeout_s)
        if server is not None:
            await asyncio.to_thread(_chown_tree, target, server)

    def _settle_owner(self) -> None:
        """Give a cluster that a backup brought back as root's to a private account; root only."""
        info = self.folder.stat()
        if info.st_uid == 0:
            _chown_tree(self.folder, choose_account())
            info = self.folder.stat()
        _open_to_group(self.home, info.st_gid)

    def _give_to_server(self, path: Path) -> None:
        info = self.folder.stat()
        os.chown(path, info.st_uid, info.st_gid, follow_symlinks=False)


def _open_to_group(folder: Path, gid: int) -> None:
    os.chown(folder, 0, gid)
    folder.chmod(0o710)


def _chown_tree(top: Path, account: Account) -> None:
    for folder, _folders, files in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _fits_socket(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES_MAX
