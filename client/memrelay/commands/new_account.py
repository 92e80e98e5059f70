"""Founds an account at a relayer, and writes the profile that holds its first key.

It does not own what people are told of it (`account.py`, `trial.py`), or the files of new keys
(`new_keys.py`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay.commands.new_keys import default_label, new_profile, put_in_place, request_with_key_in
from memrelay.commands.shell import Shell
from memrelay.config import expand_home
from memrelay.local_relayer import SOCKET, default_folder, prepare
from memrelay.models import NewAccount
from memrelay.sealed.keys import Identity, account_id_of, account_text
from memrelay.secure_files import write_private
from memrelay.sync_client import SyncMemoryClient
from memrelay.unix_sockets import socket_url


@dataclass(frozen=True)
class Wish:
    """The account that is wished for; with a `data_folder`, at the relayer that is started there.

    Without a `label`, its first key is named after this user and machine.
    """

    url: str
    data_folder: Path | None = None
    custody: str = "sealed"
    label: str | None = None
    namespace: str = "default"
    relayer_key: str | None = None
    allow_insecure: bool = False

    @classmethod
    def here(cls, folder: Path, **others: Any) -> "Wish":
        """Return the wish for an account at the relayer of a data folder on this machine."""
        return cls(socket_url(folder / SOCKET), folder, **others)


def choose_data_folder(shell: Shell) -> Path:
    """Return the data folder that --data-dir names, or this user's own."""
    chosen = shell.args.data_dir
    return expand_home(chosen).absolute() if chosen else default_folder(shell.environ)


def found_account(
    shell: Shell, path: Path, wish: Wish, *, replaces: bool | None
) -> tuple[NewAccount, Identity]:
    """Found an account, and write its profile; return it and its first key.

    `replaces` as of `new_profile`.

    Raises:
        ConfigError: there is a profile already, or the data folder cannot be used.
        MemrelayError: the relayer refused, or cannot be reached.
    """
    founder = Identity.generate()
    values: dict[str, Any] = {
        "url": wish.url,
        "account_id": account_text(account_id_of(founder.public_key)),
        "private_key": founder.seed_hex(),
        "namespace": wish.namespace,
        "custody": wish.custody,
        "allow_insecure": wish.allow_insecure,
    }
    with new_profile(path, replaces=replaces) as pending:
        if wish.data_folder is not None:
            prepare(wish.data_folder)
        # Written before the account is founded: a key that cannot be kept must not found anything.
        write_private(pending, values)
        with request_with_key_in(pending), shell.newcomer() as token:
            account = SyncMemoryClient.create_account(
                wish.url,
                custody=wish.custody,
                label=default_label() if wish.label is None else wish.label,
                token=token,
                identity=founder,
                relayer_key=wish.relayer_key,
                allow_insecure=wish.allow_insecure,
                repeating=shell.make_repeat_notice(wish.url),
            )
        write_private(pending, {**values, "relayer_key": account.relayer_key})
        put_in_place(pending, path)
    return account, founder
