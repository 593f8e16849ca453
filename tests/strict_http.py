"""The strict provider's listener: requests in, and whole, streamed, cut or hanging answers out."""

import os
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tests.strict_bodies import Body, encoded
from tests.strict_replies import Answered, Drop, Fault, Hang, Raw, Reply


class Served(Protocol):
    """What the listener asks for its answers, and tells what happens."""

    whole: bool
    connections: int
    failures: list[BaseException]
    closing: threading.Event
    hanging: threading.Event

    def answer(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[Answered, Body]:
        """What to send for a POST, and its body."""
        ...

    def page(self, path: str, headers: Mapping[str, str]) -> object:
        """What to send for a GET."""
        ...

    def streamed(self, body: Body, reply: Reply) -> list[bytes]:
        """The pieces of a reply that is streamed."""
        ...

    def completed(self, body: Body, reply: Reply) -> Body:
        """The body of a reply in one piece."""
        ...


class Listener(ThreadingHTTPServer):
    """The listener; remembers its connections so that it can end them."""

    daemon_threads = False

    def __init__(self, provider: Served) -> None:
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
    server: Listener

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
        if self.path in self.server.provider.pages:
            self.do_GET()
            return
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
                self._send_whole(200, self.server.provider.completed(body, reply))

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

    def _send_whole(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else encoded(body)
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
