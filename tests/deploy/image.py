"""The image's steps in a root that debootstrap makes, and a relayer in it as an engine runs it.

Not here: reading the Dockerfile (`dockerfile.py`), what needs an engine (`deploy/README.md` says).

- Every instruction that makes files is carried out, in order, in a root of its own for each stage.
- The relayer runs as the numeric user, with no capability, on a root that is read-only; it writes
  into the volume and into /tmp alone.
- Needs root and debootstrap.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.deploy.dockerfile import Instruction, Stage, read
from tests.life import until

ROOT: Final = Path(__file__).parent.parent.parent
WORK: Final = ROOT / "build/deploy"
# What a build has of its host's network, while a step runs: host's file → place in the root.
LENT: Final = {
    "/etc/resolv.conf": "etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt": "run/lent-certificates.pem",
}
BUILD_ENVIRONMENT: Final = {
    "PIP_CERT": "/run/lent-certificates.pem",
    "DEBIAN_FRONTEND": "noninteractive",
}
PATH_: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What an engine gives a container: processes of its own, a read-only root, /proc, and tmpfs.
CONTAINED: Final = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount --bind "$2" "$1/data" &&
mount -t tmpfs -o size=64m,mode=1777 tmpfs "$1/tmp" && mount -t proc proc "$1/proc" &&
mount -t tmpfs -o size=64m,mode=1777 tmpfs "$1/dev/shm" || exit 1
root=$1 user=$3; shift 3
exec chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"
"""


@dataclass
class Built:
    """A stage that was carried out: its folder, and how it runs."""

    folder: Path
    stage: Stage
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH_})
    workdir: str = "/"
    steps: list[str] = field(default_factory=list)


def build(folder: Path) -> Built:
    """Carry out `deploy/Dockerfile` below `folder`; returns its last stage."""
    done: dict[str, Built] = {}
    for number, stage in enumerate(read(ROOT / "deploy/Dockerfile")):
        built = Built(folder / f"stage-{number}", stage)
        copy(base(stage.image), built.folder)
        for instruction in stage.instructions:
            carry_out(built, instruction, done)
        done[stage.name] = built
    return built


def base(image: str) -> Path:
    """A root that stands for `debian:SUITE-slim`; made once."""
    match = re.fullmatch(r"debian:([a-z]+)-slim", image)
    assert match is not None, f"{image} is none that debootstrap can make"
    made = WORK / match[1]
    if not made.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        half = WORK / f"{match[1]}.half"
        shutil.rmtree(half, ignore_errors=True)
        run(["debootstrap", "--variant=minbase", match[1], str(half)])
        half.rename(made)
    return made


def carry_out(built: Built, instruction: Instruction, stages: dict[str, Built]) -> None:
    """Do what an instruction says, if it makes files."""
    match instruction.word:
        case "ENV":
            for name, value in instruction.pairs.items():
                known = built.environment.get("PATH", "")
                built.environment[name] = value.replace("$PATH", known)
        case "WORKDIR":
            built.workdir = instruction.rest
            inside(built, built.workdir).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy_into(built, instruction.rest.split(), stages)
        case "RUN":
            _run_inside(built, instruction.rest)
        case _:
            return
    built.steps.append(f"{instruction.word} {instruction.rest}")
    print(f"  {instruction.word} {instruction.rest[:80]}", file=sys.stderr)


def _copy_into(built: Built, words: Sequence[str], stages: dict[str, Built]) -> None:
    source = ROOT
    if words[0].startswith("--from="):
        source, words = stages[words[0].removeprefix("--from=")].folder, words[1:]
    *names, target = words
    into = inside(built, target)
    for name in names:
        found = source / name.lstrip("/")
        if source == ROOT:
            assert sent_to_engine(name), f".dockerignore leaves out {name}"
        if found.is_dir():
            copy(found, into)
        else:
            place = into / found.name if target.endswith("/") else into
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)


def sent_to_engine(name: str) -> bool:
    """Whether `.dockerignore` lets this path of the checkout through."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and fnmatch(name, pattern):
            sent = line.startswith("!")
    return sent


def inside(built: Built, path: str) -> Path:
    """Where a path of the image is on this machine."""
    return built.folder / os.path.join(built.workdir, path).lstrip("/")


def _run_inside(built: Built, command: str) -> None:
    root = built.folder
    for name, place in LENT.items():
        shutil.copy(name, root / place)
    words = ["chroot", str(root), "/bin/sh", "-ec", f"cd {built.workdir} && {command}"]
    environment = built.environment | BUILD_ENVIRONMENT
    run(["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", *words], environment)
    for place in LENT.values():  # an engine does not leave them in the image
        (root / place).unlink()


@contextmanager
def container(
    built: Built, data: Path, *arguments: str, **environment: str
) -> Iterator["subprocess.Popen[str]"]:
    """The image's process with these arguments behind its entry point; ended as an engine does."""
    user = built.stage.fact("USER").rest.split(":")[0]
    os.chown(data, int(user), int(user))
    command = [*built.stage.fact("ENTRYPOINT").arguments, *arguments]
    with apart(
        ["sh", "-c", CONTAINED, "sh", str(built.folder), str(data), user, *command],
        built.environment | environment,
    ) as process:
        yield process


@contextmanager
def apart(
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    ending: int = signal.SIGTERM,
) -> Iterator["subprocess.Popen[str]"]:
    """A command as the first of processes and mounts of its own, which get `ending` at the end."""
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(first_of(process), ending)  # `unshare` itself only waits
            process.wait(timeout=120)
        assert process.stdout is not None
        process.stdout.close()


def first_of(process: "subprocess.Popen[str]") -> int:
    """The first of the processes behind `unshare`, by its number out here."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(lambda: children.read_text() != "", "unshare has begun")
    return int(children.read_text())


def copy(source: Path, target: Path) -> None:
    """Copy the content of a folder as it is, owners and links too."""
    target.mkdir(parents=True, exist_ok=True)
    run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)])


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)
