"""The benchmark suite: its arithmetic, its load, and that every part of it runs.

What it measures is nobody's business here: no test looks at how large a figure is.
"""

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import PARTS, parsed
from bench.curves import drawn
from bench.figures import Bounds, Curve, Figure, Report, compared, in_turn, rounded, share
from bench.load import driven, refusals
from bench.sentences import Questions, sentence
from tests.model_fixture import upstream_folder

REPOSITORY = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
COMMAND = [sys.executable, "-m", "bench"]
RUN_S_MAX = 3600

AT_MOST = Bounds(must=2.0, aim=1.4)
AT_LEAST = Bounds(must=0.6, aim=0.85, at_least=True)


@pytest.mark.parametrize(
    ("bounds", "measured", "verdict"),
    [
        (AT_MOST, 1.4, "aim"),
        (AT_MOST, 1.41, "must"),
        (AT_MOST, 2.0, "must"),
        (AT_MOST, 2.01, "missed"),
        (AT_MOST, math.inf, "missed"),
        (AT_MOST, math.nan, "missed"),
        (AT_LEAST, 0.85, "aim"),
        (AT_LEAST, 0.84, "must"),
        (AT_LEAST, 0.59, "missed"),
        (AT_LEAST, math.nan, "missed"),
        (Bounds(must=0, aim=0), 0, "aim"),
        (Bounds(must=0, aim=0), 1, "missed"),
    ],
)
def test_a_figure_reaches_its_aim_what_it_must_or_neither(
    bounds: Bounds, measured: float, verdict: str
) -> None:
    assert bounds.verdict(measured) == verdict


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_judged_instead_of_the_value() -> None:
    figure = compared("it", "ms", [10, 90, 40], "floor", [10, 50, 10], AT_MOST)
    assert figure.ratio == 1.8  # of 1, 1.8 and 4; the medians would give 4
    assert figure.value == 40
    assert figure.baseline == 10
    assert figure.verdict == "must"
    assert Figure(name="it", value=3.0, unit="s", bounds=AT_MOST).verdict == "missed"
    assert Figure(name="it", value=3.0, unit="s").verdict == ""


def test_rounds_of_unequal_number_are_not_compared() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compared("it", "ms", [1, 2, 3], "floor", [1, 2])


async def test_measures_take_turns_and_every_other_round_goes_backwards() -> None:
    order: list[str] = []

    def measure(name: str) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            order.append(name)
            return len(order)

        return run

    assert await in_turn(3, measure("a"), measure("b")) == [[1, 4, 5], [2, 3, 6]]
    assert "".join(order) == "abbaab"


def test_a_share_is_a_value_that_was_seen() -> None:
    assert [share([4, 1, 3, 2], part) for part in (0.01, 0.25, 0.5, 0.95, 1.0)] == [1, 1, 2, 4, 4]


def test_three_digits_count() -> None:
    assert [rounded(n) for n in (0, 0.0123456, 1.23456, 123.456, 123456)] == [
        0,
        0.0123,
        1.23,
        123,
        123456,
    ]


def test_a_table_says_what_was_missed() -> None:
    figures = [
        compared("it", "ms", [30], "floor", [10], AT_MOST),
        Figure(name="x", value=1, unit=""),
    ]
    table = Report(figures, notes=["a note"]).as_table()
    assert "| it | 30 ms | floor: 10 | 3 (3–3) | ≤ 2, 1.4 | missed |" in table
    assert "| x | 1 |  |  |  |  |" in table
    assert table.endswith("\na note")


def test_sentences_and_questions_differ_and_are_the_same_in_every_run() -> None:
    many = range(20_000)
    assert len({sentence(n) for n in many}) == len(many)
    assert sentence(1) == sentence(1) != sentence(2)
    ours, others = Questions(), Questions()
    asked = [next(ours) for _ in many]
    assert len(set(asked)) == len(many)
    assert next(others) == asked[0]


def test_a_picture_has_every_line_within_its_panel_and_no_name_as_markup() -> None:
    curves = [
        Curve("one", "n", "ms", {"<a>": [(1, 5.0), (64, 900.0)], "b": [(1, 5.0), (64, 5.0)]}),
        Curve("flat", "n", "ms", {"only": [(10, 3.0)]}),
    ]
    picture = ElementTree.fromstring(drawn(curves))
    lines = picture.findall(f"{SVG}polyline")
    assert len(lines) == 3
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= float(picture.attrib["width"])
            assert 0 <= y <= float(picture.attrib["height"])
    assert "<a>" in [text.text for text in picture.iter(f"{SVG}text")]
    assert not list(picture.iter("a"))


@asynccontextmanager
async def answering(status: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server on loopback that answers everything by this status: (URL, request lines)."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            seen.append(head.split(b"\r\n", 1)[0])
            body = b"x" * len(seen)
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
            )
        writer.close()

    async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(until_closed, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", seen


def requests(client: int) -> list[bytes]:
    return [b"GET /%d/%d HTTP/1.1\r\n\r\n" % (client, n) for n in range(4)]


async def test_a_load_sends_every_request_once_and_times_each() -> None:
    async with answering(202) as (url, seen):
        load = await driven([(url, requests(client)) for client in range(3)])
    assert sorted(seen) == sorted(
        request.split(b"\r\n", 1)[0] for client in range(3) for request in requests(client)
    )
    assert len(load.times_ms) == 12
    assert refusals([load]) == []
    assert load.per_s > 0


@pytest.mark.parametrize("status", [301, 401, 429, 503])
async def test_what_is_refused_is_said_and_does_not_count(status: int) -> None:
    async with answering(status) as (url, _):
        load = await driven([(url, requests(client)) for client in range(2)])
    assert load.refused == {str(status): 8}
    assert load.times_ms == []
    assert load.per_s == 0
    assert refusals([load, load]) == [f"requests that were refused: 16 by {status}"]


async def test_a_server_that_is_not_there_is_no_result() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # so that nobody else listens there
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="the load process failed"):
            await driven([(url, requests(0))])


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["recall", "nosuch"],
        ["--rounds", "many"],
        ["--rounds", "0"],
        ["recall", "--largest", "99"],
        ["--quick", "--largest", "49"],
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parsed(arguments)
    assert refused.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_every_part_is_run_unless_some_are_named() -> None:
    assert parsed([]).parts == list(PARTS)
    assert parsed(["signing", "recall"]).parts == ["signing", "recall"]


def test_the_embedders_table_is_printed(model_dir: Path) -> None:
    upstream_folder()  # or it would be fetched there
    done = subprocess.run(
        [sys.executable, "-m", "bench.embedder", "--quick"],
        cwd=REPOSITORY,
        env=os.environ | {"RELAYER_MODEL_DIR": str(model_dir)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    head, _, floats, served = done.stdout.splitlines()
    assert head.count("tokens") == 3
    assert floats.startswith("| fp32 | 1.0000, 1.0000 |")
    assert 0.98 < float(served.split("|")[2].split(",")[0]) < 1


@pytest.mark.long
def test_every_part_of_the_suite_runs(tmp_path: Path, model_dir: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "curves.svg"
    done = subprocess.run(
        [*COMMAND, "--quick", "--json", str(figures), "--svg", str(picture)],
        cwd=REPOSITORY,
        env=os.environ | {"RELAYER_MODEL_DIR": str(model_dir)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    parts = json.loads(figures.read_text())["parts"]
    assert list(parts) == list(PARTS)
    assert [line[3:] for line in done.stdout.splitlines() if line.startswith("## ")] == list(PARTS)
    for name in set(parts) - {"others", "models"}:  # with programs and models not installed here
        assert parts[name]["figures"], name
    for figure in (figure for part in parts.values() for figure in part["figures"]):
        assert math.isfinite(figure["value"]), figure
        assert (figure["baseline"] is None) == (figure["ratio"] is None), figure
        assert figure["ratio"] is None or figure["ratio"] > 0, figure
        assert "verdict" not in figure, "of tiny numbers nothing is asked"
    lines = [line for part in parts.values() for curve in part["curves"] for line in curve["lines"]]
    assert len(ElementTree.parse(picture).getroot().findall(f"{SVG}polyline")) == len(lines) > 0
