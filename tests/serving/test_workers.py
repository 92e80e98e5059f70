"""`relayer serve --workers 2`: one address, several processes, and none of them is missed."""

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from relayer.monitoring.readiness import CHECKS
from relayer.sealed.objects import strict_json
from relayer.sealed.unlock import generate_unlock_key
from relayer.serve import bind, url_of
from relayer.settings import Settings, SettingsError
from relayer.storage import Storage
from relayer.workers.lines import keys_line, read_keys, read_lines, read_settings, settings_line
from relayer.workers.supervisor import refuse_too_many
from tests.life import until
from tests.processes import (
    RunningRelayer,
    begun_by,
    create_account,
    is_there,
    postgres_of,
    running_relayer,
    workers_of,
)
from tests.telemetry.reading import Scrape, read
from tests.traffic import lost_or_doubled, traffic

QUIET = {"RELAYER_EMBEDDER": "none", "RELAYER_RATE_LIMIT": "off"}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    """Two workers on an embedded database of their own."""
    folder = tmp_path_factory.mktemp("crew")
    with running_relayer(folder, model_dir, "--workers", "2", **QUIET) as relayer:
        yield relayer
        workers = workers_of(relayer)
    until(lambda: not any(map(is_there, workers)), "they end with their supervisor")
    until(lambda: postgres_of(folder) is None, "and the database with them")


@pytest.fixture(scope="module")
def accounts(crew: RunningRelayer) -> dict[str, dict[str, Any]]:
    """A sealed account, whose keys every request brings along, and a managed one."""
    return {custody: create_account(crew, custody) for custody in ("sealed", "managed")}


class TestRestarts:
    """What is acknowledged is kept; who asks meanwhile is answered."""

    def test_one_by_one_without_a_failed_request(
        self, crew: RunningRelayer, accounts: dict[str, dict[str, Any]]
    ) -> None:
        before = workers_of(crew)
        assert len(before) == 2
        with traffic(crew.url, accounts, askers=2) as going:
            going.goes_on()
            crew.process.send_signal(signal.SIGHUP)
            until(lambda: "workers.renewed" in crew.log.read_text(), "it is told")
            assert len(workers_of(crew) - before) == 2
            assert not before & workers_of(crew)
            going.goes_on()
        for who, account in accounts.items():
            assert lost_or_doubled(crew.url, account, going.acknowledged[who]) == []

    def test_one_that_is_killed_has_a_successor(
        self, crew: RunningRelayer, accounts: dict[str, dict[str, Any]]
    ) -> None:
        with traffic(crew.url, accounts) as going:
            going.goes_on()
            before, begun = workers_of(crew), begun_by(crew)
            killed = min(before)
            os.kill(killed, signal.SIGKILL)
            going.goes_on()
            until(lambda: begun_by(crew) > begun, "its place is filled")
            going.goes_on()
        assert len(workers_of(crew)) == 2
        assert before - {killed} <= workers_of(crew), "the other one was left alone"
        for who, account in accounts.items():
            assert lost_or_doubled(crew.url, account, going.acknowledged[who]) == []

    def test_a_release_that_does_not_start_takes_nothing_away(self, crew: RunningRelayer) -> None:
        key = crew.data_dir / "relayer.key"
        held, before = key.read_text(), workers_of(crew)
        key.write_text("no key\n")
        try:
            crew.process.send_signal(signal.SIGHUP)
            until(lambda: "workers.not_renewed" in crew.log.read_text(), "it is told")
            assert workers_of(crew) == before
            assert httpx.get(f"{crew.url}/health", timeout=60).status_code == 200
        finally:
            key.write_text(held)

    def test_none_outlives_a_supervisor_that_is_killed(
        self, tmp_path: Path, model_dir: Path
    ) -> None:
        with running_relayer(tmp_path, model_dir, "--workers", "2", **QUIET) as relayer:
            workers = workers_of(relayer)
            assert len(workers) == 2
            relayer.kill()
            until(lambda: not any(map(is_there, workers)), "the workers end")
            until(lambda: postgres_of(tmp_path) is None, "and the database with the last")


class TestOneRelayer:
    """Whoever is asked speaks for all."""

    def test_every_worker_lists_the_same_unlock_keys(self, crew: RunningRelayer) -> None:
        told = [
            httpx.get(f"{crew.url}/v1/relayer", timeout=60).json()["statement"] for _ in range(12)
        ]
        assert len(told) == 12
        listed = {_kids(statement) for statement in told}
        assert len(listed) == 1
        assert len(listed.pop()) == 1

    def test_counts_are_of_all_workers(self, crew: RunningRelayer) -> None:
        before = max(_counted(crew.url) for _ in range(6))
        for _ in range(20):
            assert httpx.get(f"{crew.url}/health", timeout=60).status_code == 200
        until(
            lambda: min(_counted(crew.url) for _ in range(6)) >= before + 20,
            "workers that are not asked add up every few seconds",
        )

    def test_what_the_ended_counted_is_kept_and_takes_no_room(self, crew: RunningRelayer) -> None:
        before, begun = max(_counted(crew.url) for _ in range(6)), begun_by(crew)
        os.kill(min(workers_of(crew)), signal.SIGKILL)
        until(lambda: begun_by(crew) > begun, "its place is filled")
        folder = crew.data_dir / "metrics"

        def whose() -> set[str]:
            return {path.stem.rpartition("_")[2] for path in folder.glob("counter_*.db")}

        living = {str(pid) for pid in workers_of(crew)}
        until(lambda: whose() == living | {"gone"}, "one file has the counts of all that ended")
        assert min(_counted(crew.url) for _ in range(6)) >= before

    def test_levels_are_of_all_workers_and_the_databases_of_none_twice(
        self, crew: RunningRelayer
    ) -> None:
        """Connections are added up, within seconds; jobs are the database's, whoever is asked."""

        def told() -> Scrape:
            return read(httpx.get(f"{crew.url}/metrics", timeout=60).text)

        pool = Settings().database_connections
        until(lambda: told().of("memrelay_database_connections_max") == 2 * pool, "both are there")
        until(lambda: told().of("memrelay_write_ready") == 1, "the database answers in time")
        until(lambda: "memrelay_jobs" in told().names, "and says what is queued")
        checks = "memrelay_check_ok"
        assert {told().of(checks, check=name) for name in CHECKS} <= {0, 1}, "nothing twice"

    def test_doctor_tells_how_many(self, crew: RunningRelayer) -> None:
        findings = {f["check"]: f for f in crew.command("doctor")["findings"]}
        assert findings["server"]["detail"] == f"{crew.url}, 2 workers"

    def test_keys_are_in_no_argument_and_in_no_environment(self, crew: RunningRelayer) -> None:
        for pid in workers_of(crew):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            assert max(len(word) for word in words[1:]) < 32
            assert words[-2].isdigit()
            assert not any(b"unlock" in word for word in words)
            assert b"unlock" not in _environment(pid)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        assert os.getuid() != 0
        return b""  # no process of this user may read it, which is better still


def _kids(statement: str) -> frozenset[str]:
    payload = strict_json(base64.b64decode(statement)[:-64])
    return frozenset(key["kid"] for key in payload["unlock_keys"])


def _counted(url: str) -> float:
    """How many requests were answered, as whichever worker takes this connection says."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    counts = [line for line in lines if line.startswith("memrelay_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


class TestWhatCannotStart:
    @pytest.mark.parametrize(("workers", "connections"), [(2, 500), (90, 2)])
    async def test_more_connections_than_the_database_has(
        self, storage: Storage, settings: Settings, workers: int, connections: int
    ) -> None:
        many = replace(settings, workers=workers, database_connections=connections)
        with pytest.raises(SettingsError, match="RELAYER_DATABASE_CONNECTIONS"):
            await refuse_too_many(storage, many)
        await refuse_too_many(storage, replace(settings, workers=2))

    async def test_a_pooler_gives_connections_of_its_own(
        self, storage: Storage, settings: Settings
    ) -> None:
        many = replace(settings, workers=2, database_connections=500)
        await refuse_too_many(storage, replace(many, database_direct_url=settings.database_url))

    def test_an_address_that_is_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            settings = Settings(port=taken.getsockname()[1])
            with pytest.raises(SettingsError, match="RELAYER_PORT"), bind(settings):
                pytest.fail("two listen there")

    @pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
    def test_an_address_that_is_not_here(self, host: str) -> None:
        with pytest.raises(SettingsError, match="RELAYER_HOST"), bind(Settings(host=host, port=0)):
            pytest.fail("it listens there")

    def test_no_workers(self) -> None:
        with pytest.raises(SettingsError, match="RELAYER_WORKERS"):
            Settings(workers=0)


class TestLines:
    """What goes between a supervisor and a worker."""

    def test_settings_arrive_as_they_were(self, tmp_path: Path) -> None:
        settings = Settings(data_dir=tmp_path, host="::1", metrics_token="count-me-" * 2)
        assert read_settings(settings_line(settings)) == settings
        assert read_settings(settings_line(replace(settings, workers=3))).workers == 3

    def test_a_worker_of_another_release_takes_the_settings_it_knows(self, tmp_path: Path) -> None:
        settings = Settings(data_dir=tmp_path, workers=3)
        told = json.loads(settings_line(settings)) | {"gone_since": 1}
        del told["host"]  # as of a supervisor from before it was a setting
        assert read_settings(json.dumps(told).encode()) == settings

    def test_keys_arrive_as_they_were(self) -> None:
        keys = [generate_unlock_key(not_after_ms=n) for n in (5, 7)]
        line = keys_line(keys)
        assert line.count(b"\n") == 1
        assert read_keys(line) == keys
        assert "…" in repr(read_keys(line)[0].private_key)

    def test_lines_are_heard_whole(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for part in (b"on", b"e\ntwo\nth", b"ree\nfour"):
                theirs.sendall(part)
            theirs.shutdown(socket.SHUT_WR)
            assert list(read_lines(ours)) == [b"one\n", b"two\n", b"three\n"], "the rest is no line"

    def test_a_free_port_is_one_for_every_address(self) -> None:
        with bind(Settings(host="localhost", port=0)) as sockets:
            assert len({one.getsockname()[1] for one in sockets}) == 1
            assert all(one.fileno() >= 0 for one in sockets)
        assert all(one.fileno() == -1 for one in sockets)

    @pytest.mark.parametrize("host", ["", "127.0.0.1", "::1", "0.0.0.0", "::"])
    def test_what_listens_is_reached_at_the_url_that_is_told(self, host: str) -> None:
        settings = Settings(host=host, port=0)
        with bind(settings) as sockets:
            for one in sockets:
                one.listen()
            url = urlsplit(url_of(settings, sockets))
            assert url.hostname
            with socket.create_connection((url.hostname, url.port), timeout=60):
                pass
