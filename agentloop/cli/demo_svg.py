"""The picture of the demonstration: tokens over requests, without compaction and with it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One conversation: the tokens of each request, which came right after a compaction, and if it died."""

    tokens: Sequence[int]
    compacted_at: frozenset[int] = frozenset()
    died: bool = False


def picture(without: Curve, with_it: Curve, *, window: int, most: int) -> str:
    """The SVG; readable on a light and on a dark page.

    `window` is what the model takes, `most` the largest request in it that leaves room for an answer, in
    tokens.
    """
    sheet = _Sheet(window=window, requests=max(len(without.tokens), len(with_it.tokens)))
    return "\n".join([*_frame(sheet, most), *_folded(sheet, with_it), *_grown(sheet, without), "</svg>", ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    window: int
    requests: int

    def x(self, index: int) -> float:
        return round(_LEFT + _WIDTH * index / max(1, self.requests - 1), 1)

    def y(self, tokens: float) -> float:
        return round(_BOTTOM - _HEIGHT * tokens / self.window, 1)

    def line(self, tokens: Sequence[int], first: int, kind: str) -> str:
        points = " ".join(f"{self.x(first + index)},{self.y(each)}" for index, each in enumerate(tokens))
        return f'<polyline class="line {kind}" points="{points}"/>'


def _frame(sheet: _Sheet, most: int) -> Iterator[str]:
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 400" width="760" height="400" role="img">'
    yield "<title>One conversation, without compaction and with it: tokens over requests</title>"
    yield f"<style>\n{_STYLE}</style>"
    yield '<rect class="card" x="0.5" y="0.5" width="759" height="399" rx="8"/>'
    yield _text(20, 30, "The same conversation, without compaction and with it", "title")
    yield _text(20, 52, "Tokens of each request. Both runs are real: agentloop demo", "small")
    room = sheet.y(most) - _TOP
    yield f'<rect class="reserve" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{room}"/>'
    yield _text(_LEFT + 8, _TOP + 20, "kept free for the answer", "small")
    for tokens in range(0, sheet.window, sheet.window // 4):
        yield _level(sheet.y(tokens), "grid")
        yield _text(_LEFT - 8, sheet.y(tokens) + 4, f"{tokens:,}", "small", "end")
    yield _level(_TOP, "window")
    yield _text(_LEFT - 8, _TOP + 4, f"{sheet.window:,}", "small", "end")
    yield _text(_LEFT, _TOP - 8, "the model’s window")
    for index in (0, *range(3, sheet.requests, 4)):
        yield _text(sheet.x(index), _BOTTOM + 20, str(index + 1), "small", "middle")
    yield _text(_RIGHT, _BOTTOM + 44, "requests", "small", "end")


def _grown(sheet: _Sheet, curve: Curve) -> Iterator[str]:
    last = len(curve.tokens) - 1
    x, y = sheet.x(last), sheet.y(curve.tokens[last])
    yield sheet.line(curve.tokens, 0, "without")
    if curve.died:
        yield f'<path class="line without" d="M{x - 7} {y - 7} l14 14 m0 -14 l-14 14"/>'
        yield _text(x + 16, y + 5, "without: overflow, the end", "without")


def _folded(sheet: _Sheet, curve: Curve) -> Iterator[str]:
    starts = sorted({0, *curve.compacted_at})
    for start, end in zip(starts, [*starts[1:], len(curve.tokens)], strict=True):
        if start:
            yield sheet.line(curve.tokens[start - 1 : start + 1], start - 1, "with fold")
        yield sheet.line(curve.tokens[start:end], start, "with")
    for start in starts[1:]:
        x, y = sheet.x(start), sheet.y(curve.tokens[start])
        yield f'<circle class="with" cx="{x}" cy="{y}" r="5"/>'
        yield _text(x, y + 24, "compacted", "with", "end" if start > sheet.requests - 3 else "middle")
    yield _text(_LEFT + 8, _BOTTOM + 44, f"with: all {len(curve.tokens)} requests are answered", "with")


def _level(y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'
