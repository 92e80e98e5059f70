"""A root in which the system's own manager runs, with the unit of the relayer.

Not here: making that root (`image.py`).

- Processes, mounts and names are its own, and it has booted; the network is this machine's.
- Limits of memory and of tasks hold only where the machine has control groups of version 2 with
  these controllers; everything else of the unit does.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.image import ROOT, Built, apart, copy, first_of, run

UNIT: Final = "memrelay-relayer.service"
SECRETS: Final = ("registration_token", "metrics_token")
# A root by chroot alone may make no namespaces, which half of the unit's protections are.
BOOT: Final = """
mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount -t sysfs sysfs sys &&
mount -t cgroup2 cgroup2 sys/fs/cgroup && mount -t tmpfs tmpfs run && mount -t tmpfs tmpfs tmp &&
mount -t tmpfs -o mode=1777 tmpfs dev/shm && pivot_root . mnt || exit 1
exec env -i container=test PATH=/usr/sbin:/usr/bin chroot . sh -c 'umount -l /mnt &&
mount --make-rshared / && exec /lib/systemd/systemd --show-status=0 --log-target=null'
"""


@dataclass(frozen=True)
class Machine:
    """A booted root."""

    first: int  # its first process, by the number out here

    def run(self, *command: str) -> str:
        """What a command in it prints, on whatever exit."""
        inside = ["nsenter", "-t", str(self.first), "-m", "-p", "-u", "-i", "-r", "-w"]
        done = subprocess.run(
            [*inside, *command], capture_output=True, text=True, timeout=240, check=False
        )
        return (done.stdout + done.stderr).strip()


def installed(built: Built, folder: Path, port: int) -> Path:
    """A copy of the image's root, with systemd and the service as `deploy/README.md` has it."""
    copy(built.folder, folder)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    packages = "systemd dbus procps"
    line = f"apt-get update && apt-get install --yes --no-install-recommends {packages}"
    run(["chroot", str(folder), "sh", "-ec", line], built.environment)
    shutil.copy(ROOT / "deploy/systemd" / UNIT, folder / "etc/systemd/system" / UNIT)
    secrets = folder / "etc/memrelay/secrets"
    secrets.mkdir(parents=True, mode=0o700)
    for name in SECRETS:
        (secrets / name).write_text(f"{name}-of-a-test")
        (secrets / name).chmod(0o600)
    (folder / "etc/memrelay/relayer.env").write_text(f"RELAYER_PORT={port}\n")
    # No logins: the terminals would be this machine's.
    others = ("getty.target", "systemd-logind", "systemd-networkd", "systemd-resolved")
    run(["chroot", str(folder), "systemctl", "mask", *others])
    run(["chroot", str(folder), "systemctl", "enable", UNIT])
    return folder


@contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """The machine of a root, until it is switched off."""
    with apart(["sh", "-c", BOOT, "sh", str(folder)], ending=signal.SIGKILL) as process:
        yield Machine(first_of(process))
