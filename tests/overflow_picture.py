"""The picture of the demonstration; `python -m tests.overflow_picture` draws `docs/overflow.svg` anew."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentloop.cli.demo import RESERVE, WINDOW, DemoReport, run_both

PICTURE = Path(__file__).parent.parent / "docs" / "overflow.svg"

_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 96, 640, 240
_RIGHT, _BOTTOM = _LEFT + _WIDTH, _TOP + _HEIGHT

_STYLE = """\
text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.card { fill: #ffffff; stroke: #d1d9e0 }
.title { font-size: 17px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.window { stroke: #59636e; stroke-width: 2; stroke-dasharray: 7 5 }
.reserve { fill: #59636e; fill-opacity: 0.1 }
.line { fill: none; stroke-width: 3; stroke-linejoin: round; stroke-linecap: round }
.without { stroke: #cf222e } text.without { stroke: none; fill: #cf222e; font-weight: 600 }
.with { stroke: #0969da } text.with { stroke: none; fill: #0969da; font-weight: 600 }
.fold { stroke-dasharray: 2 6 }
circle.with { fill: #ffffff; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .card { fill: #0d1117; stroke: #3d444d }
  .small { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .window { stroke: #9198a1 }
  .reserve { fill: #9198a1; fill-opacity: 0.15 }
  .without { stroke: #ff7b72 } text.without { fill: #ff7b72 }
  .with { stroke: #58a6ff } text.with { fill: #58a6ff }
  circle.with { fill: #0d1117 }
}
"""


def draw(without: DemoReport, with_it: DemoReport) -> str:
    """The two runs as an SVG, readable on a light and on a dark page."""
    sheet = _Sheet(requests=max(len(without.turns), len(with_it.turns)))
    return "\n".join([*_frame(sheet), *_folded(sheet, with_it), *_grown(sheet, without), "</svg>", ""])


def _tokens(report: DemoReport) -> Sequence[int]:
    return [turn.tokens for turn in report.turns]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    requests: int

    def x(self, index: int) -> float:
        return round(_LEFT + _WIDTH * index / max(1, self.requests - 1), 1)

    def y(self, tokens: float) -> float:
        return round(_BOTTOM - _HEIGHT * tokens / WINDOW, 1)

    def line(self, tokens: Sequence[int], first: int, kind: str) -> str:
        points = " ".join(f"{self.x(first + index)},{self.y(each)}" for index, each in enumerate(tokens))
        return f'<polyline class="line {kind}" points="{points}"/>'


def _frame(sheet: _Sheet) -> Iterator[str]:
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 400" width="760" height="400" role="img">'
    yield "<title>One conversation, without compaction and with it: tokens over requests</title>"
    yield f"<style>\n{_STYLE}</style>"
    yield '<rect class="card" x="0.5" y="0.5" width="759" height="399" rx="8"/>'
    yield _text(20, 30, "The same conversation, without compaction and with it", "title")
    yield _text(20, 52, "Tokens of each request. Both runs are real: agentloop demo", "small")
    room = sheet.y(WINDOW - RESERVE) - _TOP
    yield f'<rect class="reserve" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{room}"/>'
    yield _text(_LEFT + 8, _TOP + 20, "kept free for the answer", "small")
    for tokens in range(0, WINDOW, WINDOW // 4):
        yield _level(sheet.y(tokens), "grid")
        yield _text(_LEFT - 8, sheet.y(tokens) + 4, f"{tokens:,}", "small", "end")
    yield _level(_TOP, "window")
    yield _text(_LEFT - 8, _TOP + 4, f"{WINDOW:,}", "small", "end")
    yield _text(_LEFT, _TOP - 8, "the model’s window")
    for index in (0, *range(3, sheet.requests, 4)):
        yield _text(sheet.x(index), _BOTTOM + 20, str(index + 1), "small", "middle")
    yield _text(_RIGHT, _BOTTOM + 44, "requests", "small", "end")


def _grown(sheet: _Sheet, report: DemoReport) -> Iterator[str]:
    last = len(report.turns) - 1
    x, y = sheet.x(last), sheet.y(_tokens(report)[last])
    yield sheet.line(_tokens(report), 0, "without")
    if report.turns[-1].died:
        yield f'<path class="line without" d="M{x - 7} {y - 7} l14 14 m0 -14 l-14 14"/>'
        yield _text(x + 16, y + 5, "without: overflow, the end", "without")


def _folded(sheet: _Sheet, report: DemoReport) -> Iterator[str]:
    counts = [turn.compactions for turn in report.turns]
    starts = [0, *(at for at in range(1, len(counts)) if counts[at] > counts[at - 1])]
    for start, end in zip(starts, [*starts[1:], len(counts)], strict=True):
        if start:
            yield sheet.line(_tokens(report)[start - 1 : start + 1], start - 1, "with fold")
        yield sheet.line(_tokens(report)[start:end], start, "with")
    for start in starts[1:]:
        x, y = sheet.x(start), sheet.y(_tokens(report)[start])
        yield f'<circle class="with" cx="{x}" cy="{y}" r="5"/>'
        yield _text(x, y + 24, "compacted", "with", "end" if start > sheet.requests - 3 else "middle")
    yield _text(_LEFT + 8, _BOTTOM + 44, f"with: all {len(_tokens(report))} requests are answered", "with")


def _level(y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(*asyncio.run(run_both())), "utf-8")
