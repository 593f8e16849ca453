"""A strict OpenAI-compatible provider on the loopback interface, for tests to talk to.

It records every request and refuses with 400 what strict providers refuse (`strict_rules`); a brain says
what it answers otherwise (`strict_replies`). `python -m tests.strict_provider --help` starts one in a
process of its own, which prints its port and ends when its standard input closes.
"""

import argparse
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.strict_dialects import DIALECTS, refused
from tests.strict_replies import (
    OVERFLOWS,
    Answered,
    Body,
    Brain,
    Drop,
    ExtractiveSummariser,
    Fault,
    Hang,
    Raw,
    Reply,
    script,
    tool_turn,
    usage_report,
)
from tests.strict_responses import (
    PATH,
    RESPONSES_OVERFLOWS,
    ResponsesSide,
    as_chat,
    is_for_responses,
    response,
    response_events,
)
from tests.strict_rules import output_limit, prompt_tokens, violations
from tests.strict_streams import PLAIN, Shape, chunk_of, shaped


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came: its bytes, its parsed body (None if it is no strict JSON), what it breaks."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Body | None
    violations: tuple[str, ...]


class StrictProvider:
    """The server; a context manager that listens inside its `with` block.

    Args:
        brain: What answers valid requests: a function of the body, or the replies in order.
        window: The most tokens of prompt and answer by the server's own count; None for no limit.
        modes: Rules of some providers, held as well: V8, V9, V11, content-never-null; and what others do not
            know, a name in `DIALECTS`.
        overflow: The dialect of refusals by V10, a name in `OVERFLOWS`.
        usage: How usage is reported, a name that `usage_report` knows.
        factor: What the server's own count is multiplied by.
        key: The only key let in; None lets in any.
        model: The only model served; None serves any.
        refuses: Fields that this server does not know.
        wording: How it says that it does not know a field, a name in `WORDINGS`.
        most_output: The longest answer in tokens that may be asked for.
        default_output: What V10 counts for the answer where a request names no limit.
        whole: Whether a stream's events are sent in one piece.
        shape: How streams are worded, the same for all or by the request's number from 1.
        pages: What a GET of these paths gets; by default `/v1/models` gets a list that names no window.
    """

    def __init__(
        self,
        brain: Brain | Sequence[Answered | str] = (),
        *,
        window: int | None = None,
        modes: Iterable[str] = (),
        overflow: str = "openai",
        usage: str = "right",
        factor: float = 1.0,
        key: str | None = None,
        model: str | None = None,
        refuses: Iterable[str] = (),
        wording: str = "openai",
        most_output: int | None = None,
        default_output: int = 0,
        whole: bool = False,
        shape: Shape | Callable[[int], Shape] = PLAIN,
        pages: Mapping[str, object] | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.failures: list[BaseException] = []
        self.brain = brain if callable(brain) else script(brain)
        self.window = window
        self.modes = frozenset(modes) - DIALECTS
        self.dialects = frozenset(modes) & DIALECTS
        self.wording = wording
        self.most_output = most_output
        self.default_output = default_output
        self.overflow = (OVERFLOWS | RESPONSES_OVERFLOWS)[overflow]
        self.usage = usage_report(usage)
        self.usage_name = usage
        self.factor = factor
        self.key = key
        self.model = model
        self.refuses = frozenset(refuses)
        self.whole = whole
        self.shape = shape if callable(shape) else lambda _: shape
        self.pages = {"/v1/models": self._listed()} if pages is None else pages
        self.closing = threading.Event()
        self.hanging = threading.Event()
        self.reasoning: dict[tuple[str, ...], str] = {}
        self.responses = ResponsesSide()
        self._lock = threading.Lock()
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None and self.failures:
            raise self.failures[0]

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Body]:
        """The parsed bodies of all requests so far."""
        return [request.body for request in self.requests if request.body is not None]

    @property
    def refusals(self) -> list[str]:
        """Every rule broken so far."""
        return [line for request in self.requests for line in request.violations]

    def close(self) -> None:
        """End all connections and stop listening."""
        self.closing.set()
        self._http.shutdown()
        self._http.end_connections()
        self._http.server_close()
        self._thread.join()

    def answer(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[Answered, Body]:
        """What to send for a request, and its body; one request at a time."""
        with self._lock:
            body, broken = self._judged(raw)
            self.requests.append(
                Received(path=path, headers=headers, raw=raw, body=body, violations=tuple(broken))
            )
            if (fault := self._at_the_door(path, headers) or self._unknown(body or {})) is not None:
                return fault, body or {}
            if body is None or broken:
                return self._refused(body or {}, broken), body or {}
            reply = self._thought(body)
            if isinstance(reply, Reply) and reply.reasoning is not None and not is_for_responses(body):
                self.reasoning[tuple(call.id for call in reply.calls)] = reply.reasoning
            return reply, body

    def page(self, path: str, headers: Mapping[str, str]) -> object:
        """What to send for a GET: a Fault or a Hang, or any other value as JSON."""
        self.asked.append((path, headers))
        return self.pages.get(path.partition("?")[0], _fault(404, f"no such path: {path}"))

    def report(self, body: Body, reply: Reply) -> Body | None:
        """The usage to report, None for none."""
        if is_for_responses(body):
            body = as_chat(body)
        asked = (body.get("stream_options") or {}).get("include_usage")
        if body.get("stream") and not asked and self.usage_name != "unasked":
            return None
        answer = prompt_tokens({"messages": [reply.message()]})
        return self.usage(prompt_tokens(body, self.factor), answer, len(self.requests))

    def streamed(self, body: Body, reply: Reply) -> list[bytes]:
        """The pieces of a reply that is streamed, in the shape that its request gets."""
        if is_for_responses(body):
            output = self.responses.output(reply)
            return response_events(body, reply, output, self.report(body, reply))
        number = next(at for at, request in enumerate(self.requests, 1) if request.body is body)
        return shaped(body, reply, self.report(body, reply), self.shape(number), random.Random(number))

    def _listed(self) -> Body:
        model = {"id": self.model or "strict", "object": "model"}
        return {"object": "list", "data": [model]}

    def _thought(self, body: Body) -> Answered:
        try:
            reply = self.brain(as_chat(body) if is_for_responses(body) else body)
        except Exception as error:  # noqa: BLE001 — whatever a test's own brain raises fails that test at exit
            self.failures.append(error)
            return _fault(400, f"the brain of this test failed: {error}")
        return Reply(text=reply) if isinstance(reply, str) else reply

    def _at_the_door(self, path: str, headers: Mapping[str, str]) -> Fault | None:
        if path not in ("/v1/chat/completions", PATH):
            return _fault(404, f"no such path: {path}")
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return _fault(401, f"Incorrect API key provided: {headers.get('authorization')}")
        return None

    def _judged(self, raw: bytes) -> tuple[Body | None, list[str]]:
        try:
            body = json.loads(raw.decode(), object_pairs_hook=_no_twins, parse_constant=_no_constant)
        except ValueError as error:
            return None, [f"V6 the body is no strict JSON in UTF-8: {error}"]
        if is_for_responses(body):
            return body, self.responses.violations(body, window=self.window, factor=self.factor)
        broken = violations(
            body,
            modes=self.modes,
            reasoning=self.reasoning,
            window=self.window,
            factor=self.factor,
            default_output=self.default_output,
        )
        return body if isinstance(body, dict) else None, broken

    def _refused(self, body: Body, broken: Sequence[str]) -> Answered:
        if is_for_responses(body) and all(line.startswith("V10") for line in broken):
            body = as_chat(body)
        if self.window is not None and all(line.startswith("V10") for line in broken):
            answer = output_limit(body) or self.default_output
            return self.overflow(self.window, prompt_tokens(body, self.factor), answer)
        return _fault(400, "; ".join(broken))

    def _unknown(self, body: Body) -> Fault | None:
        """The refusal of a field or a model that this server does not know."""
        if self.model is not None and body.get("model") != self.model:
            return _fault(404, f"The model {body.get('model')!r} does not exist")
        modes = frozenset() if is_for_responses(body) or not body else self.dialects
        return refused(
            body,
            modes=modes,
            refuses=self.refuses,
            wording=self.wording,
            most_output=self.most_output,
        )


class _Http(ThreadingHTTPServer):
    """The listener; remembers its connections so that it can end them."""

    daemon_threads = False

    def __init__(self, provider: StrictProvider) -> None:
        self.provider = provider
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        self.provider.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.provider.failures.append(error)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        match self.server.provider.page(self.path, self._named()):
            case Fault() as fault:
                self._send_whole(fault.status, fault.body, fault.headers)
            case Hang():
                self._hang()
            case page:
                self._send_whole(200, page)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        reply, body = self.server.provider.answer(self.path, self._named(), raw)
        match reply:
            case Fault():
                self._send_whole(reply.status, reply.body, reply.headers)
            case Raw():
                self._send_pieces(reply.pieces, reply.content_type, ended=not reply.left_open)
                if reply.left_open:
                    self._hang()
            case Drop():
                self._cut(reply, body)
            case Hang():
                self._hang()
            case Reply() if body.get("stream"):
                self._send_pieces(self._events(body, reply), "text/event-stream")
            case Reply():
                self._send_whole(200, self._completion(body, reply))

    def _named(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _hang(self) -> None:
        self.server.provider.hanging.set()
        self.server.provider.closing.wait()
        self.close_connection = True

    def _cut(self, drop: Drop, body: Body) -> None:
        self.close_connection = True
        if drop.events:
            pieces = self._events(body, drop.reply)[: drop.events]
            self._send_pieces(pieces, "text/event-stream", ended=False)
        if drop.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    def _events(self, body: Body, reply: Reply) -> list[bytes]:
        return self.server.provider.streamed(body, reply)

    def _completion(self, body: Body, reply: Reply) -> Body:
        if is_for_responses(body):
            output = self.server.provider.responses.output(reply)
            return response(body, reply, output, self.server.provider.report(body, reply))
        choice = {"index": 0, "message": reply.message(), "finish_reason": reply.finish_reason}
        usage = self.server.provider.report(body, reply)
        whole = chunk_of(body, choices=[choice]) | {"object": "chat.completion"}
        return whole | ({} if usage is None else {"usage": usage})

    def _send_whole(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else _json(body)
        self.send_response(status)
        kind = "text/html" if isinstance(body, str | bytes) else "application/json"
        for name, value in ({"content-type": kind, "content-length": str(len(data))} | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _send_pieces(self, pieces: Iterable[bytes], content_type: str, *, ended: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        pieces = [b"".join(pieces)] if self.server.provider.whole else pieces
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if ended:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def provider_process(*arguments: str) -> Iterator[str]:
    """A provider in a process of its own, with these arguments of the command line; yields its base URL."""
    command = [sys.executable, "-m", "tests.strict_provider", *arguments]
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.wait()


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(description="A strict provider; prints its port.")
    parser.add_argument("--brain", choices=["ok", "turn"], default="ok", help="what answers")
    parser.add_argument("--pieces", type=int, default=200, help="pieces of the text of a turn's answer")
    parser.add_argument("--window", type=int, help="in tokens")
    parser.add_argument("--whole", action="store_true", help="send a stream's events in one piece")
    given = parser.parse_args()
    inner: Brain = tool_turn(given.pieces) if given.brain == "turn" else lambda _: "ok"
    with StrictProvider(ExtractiveSummariser(inner), window=given.window, whole=given.whole) as provider:
        print(provider.port, flush=True)
        sys.stdin.read()


def _fault(status: int, message: str, **fields: Any) -> Fault:
    return Fault(
        status=status, body={"error": {"message": message, "type": "invalid_request_error"} | fields}
    )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _no_twins(pairs: list[tuple[str, Any]]) -> Body:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


if __name__ == "__main__":
    main()
