"""Where webhooks may be, and how they are called: by the address that was checked, and no other."""

import asyncio
import ipaddress
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relayer.errors import BadRequest
from relayer.events import egress
from relayer.events.egress import Poster, Target, Undelivered, is_permitted, parse_target
from relayer.sealed.keys import AccountId
from tests.hooks import certificate, listening

ANYBODY = AccountId(bytes(32))


class TestWhere:
    @pytest.mark.parametrize(
        "url",
        [
            "", "hook.example", "ftp://hook.example/", "http://hook.example/", "https://",
            "https://user@hook.example/", "https://user:pass@hook.example/",
            "https://hook.example@127.0.0.1/", "https://hook.example/#part", "https://hook.example\\x",
            "https://hook.example:0/", "https://hook.example:65536/", "https://hook.example:x/",
            "https://hook example/", " https://hook.example/", "https://hook.example/\n",
            "https://hook..example/", "https://-hook.example/", "https://hook.example.",
            "https://höök.example/", "https://hook_x.example/", "https://hook.example?x=/",
            "https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f000001/",
            "https://0x7f.1/", "https://017700000001/", "https://0177.0.0.1/", "https://[::1]/",
            "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://10.0.0.1/",
            "https://169.254.169.254/latest", "https://[fe80::1]/", "https://[fd00::1]/",
            "https://0.0.0.0/", "https://[::]/", "https://224.0.0.1/", "https://255.255.255.255/",
            "https://100.64.0.1/", "https://192.0.2.1/", "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/", "https://[::7f00:1]/", "https://8.8.8.8:25/",
            "https://hook.example/" + "x" * 2_048, "https://hook.example/\u017f",
            "https://hoo\u212a.example/", "http\u017f://hook.example/",
            "https://[8.8.8.8]/", "https://[1e9]/", "https://[beef]/",
            "https://hook.example:25/", "https://hook.example:80/", "https://hook.example:1023/",
        ],
    )  # fmt: skip
    def test_what_no_public_relayer_posts_to(self, url: str) -> None:
        with pytest.raises(BadRequest) as refusal:
            parse_target(url, "public")
        assert refusal.value.code == "webhook.url"
        assert len(url) < 12 or url not in refusal.value.message

    @pytest.mark.parametrize(
        ("url", "host", "authority"),
        [
            ("https://Hook.Example", "hook.example", "hook.example"),
            ("https://hook.example:443/", "hook.example", "hook.example"),
            ("https://hook.example:1024/", "hook.example", "hook.example:1024"),
            ("https://hook.example:8443/a?b=c", "hook.example", "hook.example:8443"),
            ("https://8.8.8.8/x", "8.8.8.8", "8.8.8.8"),
            ("https://[2606:4700::1]/x", "2606:4700::1", "[2606:4700::1]"),
        ],
    )
    def test_what_it_posts_to(self, url: str, host: str, authority: str) -> None:
        target = parse_target(url, "public")
        assert (target.host, target.authority) == (host, authority)

    def test_a_private_relayer_takes_every_port_of_its_own_networks(self) -> None:
        """Where a name leads is known later, and only what is not public may have such a port."""
        target = parse_target("https://hook.example:25/", "private")
        assert is_permitted(ipaddress.ip_address("10.1.2.3"), target, "private")
        assert not is_permitted(ipaddress.ip_address("8.8.8.8"), target, "private")

    @pytest.mark.parametrize(
        ("address", "scheme", "allowed"),
        [
            ("127.0.0.1", "http", True), ("::1", "https", True), ("10.1.2.3", "http", True),
            ("192.168.1.1", "https", True), ("100.64.0.9", "https", True),
            ("fd00::1", "http", True),
            ("::ffff:127.0.0.1", "http", True),
            ("8.8.8.8", "https", True), ("8.8.8.8", "http", False),
            ("169.254.169.254", "http", False), ("fe80::1", "http", False),
            ("0.0.0.0", "http", False),
            ("224.0.0.1", "https", False), ("64:ff9b::a00:1", "https", False),
            ("2002:a00:1::", "https", False), ("::ffff:169.254.169.254", "https", False),
            ("fe80::1%1", "https", False), ("fec0::1", "https", False),
        ],
    )  # fmt: skip
    def test_whom_a_private_relayer_may_call(
        self, address: str, scheme: str, allowed: bool
    ) -> None:
        target = Target(scheme, "hook.example", 443, "/")
        ip = ipaddress.ip_address(address)
        assert is_permitted(ip, target, "private") is allowed
        assert not is_permitted(ip, target, "none")

    @pytest.mark.parametrize(
        ("first", "last"),
        [
            ("0.0.0.0", "0.255.255.255"), ("100.64.0.0", "100.127.255.255"),
            ("192.0.0.0", "192.0.0.255"), ("192.31.196.0", "192.31.196.255"),
            ("192.52.193.0", "192.52.193.255"), ("192.88.99.0", "192.88.99.255"),
            ("192.175.48.0", "192.175.48.255"), ("198.18.0.0", "198.19.255.255"),
            ("203.0.113.0", "203.0.113.255"), ("224.0.0.0", "255.255.255.255"),
            ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ],
    )  # fmt: skip
    def test_the_registries_decide_and_no_release_of_python(self, first: str, last: str) -> None:
        """Both ends of every special range are refused."""
        target = Target("https", "hook.example", 443, "/")
        ends = ipaddress.ip_address(first), ipaddress.ip_address(last)
        assert not any(is_permitted(end, target, "public") for end in ends)

    @pytest.mark.parametrize(
        "address",
        ["1.0.0.0", "100.128.0.0", "192.0.1.0", "198.20.0.0", "223.255.255.255", "2000::",
         "2001:200::", "2620:4f:8001::", "3fff:1000::"],
    )  # fmt: skip
    def test_what_lies_beside_a_special_range_is_public(self, address: str) -> None:
        target = Target("https", "hook.example", 443, "/")
        assert is_permitted(ipaddress.ip_address(address), target, "public")

    @pytest.mark.parametrize("inner", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
    async def test_every_address_of_a_name_is_checked(
        self, inner: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name that also leads inside is not called at all."""
        resolve(monkeypatch, ["8.8.8.8", inner])
        with pytest.raises(Undelivered, match="address refused"):
            await Poster(reach="public").post(
                parse_target("https://hook.example/", "public"), b"", {}, account=ANYBODY
            )

    async def test_the_address_that_was_checked_is_called(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with listening() as hook:
            # Asked once more, the name would lead elsewhere.
            asked = resolve(monkeypatch, ["127.0.0.1"], ["10.255.255.1"])
            target = parse_target(f"http://hook.example:{hook.port}/in", "private")
            poster = Poster(reach="private")
            assert await poster.post(target, b"{}", {}, account=ANYBODY) == 204
            await poster.close()
        assert asked == ["hook.example"]
        [post] = hook.posts
        assert post.headers["host"] == f"hook.example:{hook.port}"

    @pytest.mark.parametrize(("name", "taken"), [("hook.example", True), ("other.example", False)])
    async def test_tls_is_to_the_name(
        self, name: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, believing = certificate(tmp_path, name)
        resolve(monkeypatch, ["127.0.0.1"])
        async with listening(server) as hook:
            target = parse_target(f"https://hook.example:{hook.port}/", "private")
            poster = Poster(reach="private", tls=believing)
            if taken:
                assert await poster.post(target, b"{}", {}, account=ANYBODY) == 204
            else:
                with pytest.raises(Undelivered, match="unreachable"):
                    await poster.post(target, b"{}", {}, account=ANYBODY)
            await poster.close()
        assert len(hook.posts) == taken

    async def test_the_authority_that_the_environment_names_is_believed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, _ = certificate(tmp_path, "hook.example")
        resolve(monkeypatch, ["127.0.0.1"])
        async with listening(server) as hook:
            target = parse_target(f"https://hook.example:{hook.port}/", "private")
            for named, taken in (("cert.pem", True), ("none.pem", False)):
                monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / named))
                poster = Poster(reach="private")
                if taken:
                    assert await poster.post(target, b"{}", {}, account=ANYBODY) == 204
                else:
                    with pytest.raises(Undelivered, match="unreachable"):
                        await poster.post(target, b"{}", {}, account=ANYBODY)
                await poster.close()
        assert len(hook.posts) == 1

    async def test_no_redirect_proxy_or_cookie(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with listening() as hook, listening() as elsewhere:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{elsewhere.port}")
            monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{elsewhere.port}")
            hook.answers = ["302 Found", "204 No Content"]
            hook.headers = f"location: http://127.0.0.1:{elsewhere.port}/\r\nset-cookie: a=b\r\n"
            target = parse_target(f"http://127.0.0.1:{hook.port}/", "private")
            poster = Poster(reach="private")
            with pytest.raises(Undelivered, match="status 302"):
                await poster.post(target, b"{}", {}, account=ANYBODY)
            await poster.post(target, b"{}", {}, account=ANYBODY)
            await poster.close()
        assert not elsewhere.posts
        assert "cookie" not in hook.posts[1].headers

    async def test_who_hangs_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(egress, "POST_S", 0.2)
        async with listening() as hook:
            hook.hangs = True
            poster = Poster(reach="private")
            with pytest.raises(Undelivered, match="timeout"):
                await poster.post(
                    parse_target(f"http://127.0.0.1:{hook.port}/", "private"),
                    b"",
                    {},
                    account=ANYBODY,
                )
            await poster.close()

    async def test_nobody_there_and_no_such_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with listening() as hook:
            pass
        poster = Poster(reach="private")
        with pytest.raises(Undelivered, match="unreachable"):
            await poster.post(
                parse_target(f"http://127.0.0.1:{hook.port}/", "private"), b"", {}, account=ANYBODY
            )
        resolve(monkeypatch, OSError())
        with pytest.raises(Undelivered, match="unresolved"):
            await poster.post(
                parse_target("https://hook.example/", "private"), b"", {}, account=ANYBODY
            )
        await poster.close()

    async def test_a_name_that_nobody_answers_for_holds_no_thread_of_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sealing goes on in the loop's threads; of the others, each account has its share."""
        loop, answered = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        asking: list[str] = []

        def hangs(host: str, port: int, **_: Any) -> list[Any]:
            asking.append(host)
            answered.wait(60)
            return []

        monkeypatch.setattr(socket, "getaddrinfo", hangs)
        monkeypatch.setattr(egress, "POST_S", 0.2)
        poster = Poster(reach="private")
        target = parse_target("https://hook.example/", "private")
        try:
            own = [poster.post(target, b"", {}, account=ANYBODY) for _ in range(5)]
            failed = await asyncio.gather(*own, return_exceptions=True)
            assert Counter(map(str, failed)) == {"timeout": egress.LOOKUPS_EACH, "busy": 3}
            accounts = [AccountId(bytes([n] * 32)) for n in range(1, egress.LOOKUPS_MAX)]
            others = [poster.post(target, b"", {}, account=account) for account in accounts]
            failed = await asyncio.gather(*others, return_exceptions=True)
            assert Counter(map(str, failed)) == {"timeout": egress.LOOKUPS_MAX - 2, "busy": 1}
            assert len(asking) == egress.LOOKUPS_MAX
            monkeypatch.setattr(egress, "POST_S", 60.0)  # an address waits for no thread
            address = parse_target("http://127.0.0.1:9/", "private")
            with pytest.raises(Undelivered, match="unreachable"):
                await poster.post(address, b"", {}, account=ANYBODY)
            async with asyncio.timeout(20):
                assert await asyncio.to_thread(answered.is_set) is False
        finally:
            answered.set()
            await poster.close()


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: list[str] | OSError) -> list[str]:
    """Names resolve to these addresses, one answer after the other; the list of names asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(host)
        if isinstance(answer, OSError):
            raise answer
        return [(0, 0, 0, "", (address, port)) for address in answer]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked
