"""Two relayers of one identity on one database, behind a proxy that knows nothing of them."""

from contextlib import ExitStack
from pathlib import Path

from tests.conftest import TestDatabase
from tests.life import until
from tests.loopback_proxy import loopback_proxy
from tests.processes import RunningRelayer, create_account, lasting_port, running_relayer
from tests.traffic import lost_or_doubled, traffic


def test_one_is_killed_and_comes_back(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase
) -> None:
    """No acknowledged write is lost, and whoever waits is told so: nothing else is a 5xx."""
    quiet = {
        "RELAYER_EMBEDDER": "none",
        "RELAYER_RATE_LIMIT": "off",
        "RELAYER_KEY_FILE": str(tmp_path / "relayer.key"),
    }

    def started(name: str) -> RunningRelayer:
        # Nobody else may listen where one was killed: the proxy goes on asking there.
        place = ("--port", str(lasting_port()))
        url = fresh_database.url
        return running.enter_context(
            running_relayer(tmp_path / name, model_dir, *place, database_url=url, **quiet)
        )

    with ExitStack() as running:
        one, other = started("one"), started("other")
        accounts = {custody: create_account(one, custody) for custody in ("sealed", "managed")}
        with loopback_proxy(one.url, other.url) as proxy:
            with traffic(proxy.url, accounts) as going:
                going.goes_on()
                one.kill()
                going.goes_on()
                proxy.backends[0] = started("again").url
                seen = sum(proxy.statuses.values())
                until(lambda: sum(proxy.statuses.values()) > seen, "somebody is answered")
                going.goes_on()
            assert {status for status in proxy.statuses if status >= 500} <= {503}
            assert proxy.in_vain == []
            for who, account in accounts.items():
                assert lost_or_doubled(proxy.url, account, going.acknowledged[who]) == []
