"""`relayer top`: figures between two readings, and what it does where there is none.

Not here: a running relayer (`test_whole.py`).
"""

import http.server
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from relayer.__main__ import main
from relayer.monitoring.top import Figures, NoMetrics, as_lines, parse, quantile
from tests.processes import lasting_port

READY = "memrelay_write_ready 1\n"
REQUESTS = """
memrelay_requests_total{{method="POST",path="/v1/recall",status_code="200"}} {ok}
memrelay_requests_total{{method="POST",path="/api/recall",status_code="503"}} {bad}
memrelay_request_duration_seconds_bucket{{le="0.1",method="POST",path="/v1/recall"}} {fast}
memrelay_request_duration_seconds_bucket{{le="1.0",method="POST",path="/v1/recall"}} {ok}
memrelay_request_duration_seconds_bucket{{le="+Inf",method="POST",path="/v1/recall"}} {ok}
memrelay_request_duration_seconds_count{{method="POST",path="/v1/recall"}} {ok}
memrelay_requests_rejected_total{{cause="clock"}} {bad}
memrelay_requests_rejected_total{{cause="grant"}} 3
memrelay_cache_lookups_total{{cache="chains",result="hit"}} {ok}
memrelay_cache_lookups_total{{cache="chains",result="miss"}} {bad}
memrelay_recall_queries_total{{understood="yes"}} {fast}
memrelay_recall_queries_total{{understood="no"}} {bad}
memrelay_jobs{{kind="embed",state="queued"}} 4
memrelay_oldest_job_age_seconds{{kind="embed"}} 1.25
memrelay_check_ok{{check="store"}} 0
"""


def requests(ok: int, fast: int, bad: int) -> str:
    return READY + REQUESTS.format(ok=ok, fast=fast, bad=bad)


INFINITE = math.inf


@pytest.mark.parametrize(
    ("buckets", "share", "value"),
    [
        ([], 0.5, None),
        ([(1.0, 0), (INFINITE, 0)], 0.5, None),
        ([(1.0, 10), (INFINITE, 10)], 0.5, 0.5),
        ([(1.0, 0), (2.0, 10), (INFINITE, 10)], 0.5, 1.5),
        ([(1.0, 10), (2.0, 20), (INFINITE, 20)], 0.95, 1.9),
        ([(1.0, 0), (INFINITE, 10)], 0.95, 1.0),
        ([(1.0, 10), (2.0, 10), (INFINITE, 10)], 1.0, 1.0),
    ],
)
def test_a_quantile_lies_between_bounds(
    buckets: list[tuple[float, float]], share: float, value: float | None
) -> None:
    found = quantile(buckets, share)
    assert found == (None if value is None else pytest.approx(value))


def test_what_happened_between_two_readings() -> None:
    before, now = parse(requests(10, 10, 1), 100.0), parse(requests(30, 20, 2), 102.0)
    told = Figures(now, before).as_json()
    recall = told["requests"][0]
    assert (recall["group"], recall["count"], recall["per_second"]) == ("recall", 20, 10.0)
    assert (recall["p50_ms"], recall["p95_ms"], recall["errors"]) == (100.0, 910.0, 1)
    assert told["rejected"] == {"clock": 1}, "what did not grow is left out"
    assert told["caches"] == [{"cache": "chains", "lookups": 21, "hit_share": 0.952}]
    assert told["queries"] == {"count": 11, "understood_share": 0.909}
    assert told["jobs"] == [{"kind": "embed", "queued": 4, "oldest_s": 1.2}]
    assert (told["seconds"], told["checks"]) == (2.0, {"store": False})


def test_the_first_reading_is_since_the_relayer_began() -> None:
    told = Figures(parse(requests(30, 20, 2), 5.0), None).as_json()
    assert (told["seconds"], told["requests"][0]["per_second"]) == (None, None)
    assert told["requests"][0]["count"] == 30
    assert told["rejected"] == {"clock": 2, "grant": 3}


def test_a_relayer_that_began_anew_counts_from_nothing() -> None:
    before, now = parse(requests(1_000, 900, 50), 100.0), parse(requests(7, 7, 1), 102.0)
    told = Figures(now, before).as_json()
    assert told["requests"][0]["count"] == 7
    assert told["rejected"] == {"clock": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "{",
        "up 1\n",
        "memrelay_write_ready\n",
        "memrelay_write_ready one\n",
        READY + "memrelay_jobs NaN\n",
        READY + "memrelay_jobs +Inf\n",
        READY + 'memrelay_jobs{kind="embed\n',
        READY + 'memrelay_llm_duration_seconds_bucket{le="x"} 1\n',
        READY + 'memrelay_llm_duration_seconds_bucket{le="nan"} 1\n',
    ],
)
def test_what_is_no_relayers_metrics(text: str) -> None:
    with pytest.raises(NoMetrics):
        parse(text, 0.0)


def test_nothing_that_was_read_moves_the_terminal() -> None:
    evil = 'memrelay_requests_rejected_total{cause="\x1b[2J\x07\u202eclock"} 1\n'
    told = Figures(parse(READY + evil, 0.0), None).as_json()
    shown = "\n".join(as_lines(told, title="http://\x1b]0;relayer"))
    assert told["rejected"] == {"[2Jclock": 1}
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_lines_say_what_is_not_ready() -> None:
    told = Figures(parse(requests(1, 1, 0).replace("ready 1", "ready 0"), 0.0), None).as_json()
    assert "TAKES NO WRITES: store" in as_lines(told, title="x")[0]


def test_what_must_be_seen_is_above_what_a_low_terminal_cuts_off() -> None:
    told = Figures(parse(requests(30, 20, 2), 0.0), None).as_json()
    lines = as_lines(told, title="x")
    first = [line.split()[0] for line in lines[1:5]]
    assert first == ["connections", "caches", "refused", "queries"]
    assert lines[4].endswith(" 91% of 22 known to the embedding model")


def test_nothing_is_said_of_queries_that_nobody_asked() -> None:
    told = Figures(parse(READY, 0.0), None).as_json()
    assert told["queries"] == {"count": 0, "understood_share": None}
    assert as_lines(told, title="x")[4].split() == ["queries", "-"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    """A narrow one lacks columns, and never how often a thing happened."""
    told = Figures(parse(requests(30, 20, 2), 0.0), None).as_json()
    lines = as_lines(told, title="http://memory.example.org:8000", width=width)
    assert max(map(len, lines)) <= width
    heading = next(line for line in lines if line.startswith("requests")).split()
    assert heading[:2] == ["requests", "count"]
    assert ("p50" in heading) == (width >= 60)
    [recall] = [line for line in lines if line.startswith("recall ")]
    assert recall.split()[1] == "30"


def test_numbers_stand_below_their_headings() -> None:
    told = Figures(parse(requests(30, 20, 2), 0.0), None).as_json()
    lines = as_lines(told, title="x", width=80)
    at = next(number for number, line in enumerate(lines) if line.startswith("requests"))
    ends = {line.index("count") + len("count") for line in lines[at : at + 1]}
    ends |= {len(line[: line.index(" 30") + 3]) for line in lines[at : at + 2] if " 30" in line}
    assert len(ends) == 1


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [("0", "-"), ("1.25", "1.2 s"), ("119", "119.0 s"), ("130", "2 min"), ("9000", "2 h")],
)
def test_an_age_is_told_in_the_unit_that_people_use(seconds: str, shown: str) -> None:
    text = requests(1, 1, 0).replace("1.25", seconds)
    lines = as_lines(Figures(parse(text, 0.0), None).as_json(), title="x")
    [embed] = [line for line in lines if line.startswith("embed ")]
    assert embed.endswith(f" {shown}")


# The command


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything so: its URL, and the tokens that it was sent."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.path} {self.headers.get('authorization')}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["top", *arguments])
    return done.exit_code, done.output


def test_it_asks_once_with_its_token_and_prints_plain_text() -> None:
    with answering(200, requests(30, 20, 2).encode()) as (url, seen):
        code, text = run("--url", url + "/", "--once", "--metrics-token", "0123456789abcdef")
        assert (code, run("--url", url)) == (0, (0, text)), "a pipe is no terminal"
        told = json.loads(run("--url", url, "--json")[1])
    assert seen[0] == "/metrics Bearer 0123456789abcdef"
    assert seen[1] == "/metrics None"
    assert "\x1b" not in text
    assert text.startswith(url)
    assert told["requests"][0]["count"] == 30


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, b"{}", "wants its token"),
        (404, b"", "answers 404"),
        (500, b"", "answers 500"),
        (200, b"hello", "no text of metrics"),
        (200, b"up 1\n", "no relayer's metrics"),
        (200, b"\xff\xfe", "metrics"),
        (302, b"", "answers 302"),
    ],
)
def test_who_does_not_answer_well_is_told_in_one_line(status: int, body: bytes, said: str) -> None:
    with (
        answering(200, READY.encode()) as (elsewhere, followed),
        answering(status, body, location=elsewhere) as (url, _),
    ):
        code, text = run("--url", url, "--once")
    assert (code, len(text.splitlines())) == (1, 1)
    assert said in text
    assert followed == [], "a token goes nowhere else"


def test_nobody_there_and_no_address() -> None:
    code, text = run("--url", f"http://127.0.0.1:{lasting_port()}", "--once")
    assert (code, len(text.splitlines())) == (1, 1)
    assert "no relayer answers" in text
    assert run("--url", "ftp://127.0.0.1", "--once")[0] == 2
    assert run("--url", "http://[", "--once")[0] == 1
    assert run("--nonsense")[0] == 2


def test_a_folder_without_a_relayer_means_the_usual_port(tmp_path: Path) -> None:
    code, text = run("--once", "--data-dir", str(tmp_path))
    assert "http://127.0.0.1:8000" in text
    assert code in (0, 1), "somebody may be there"
