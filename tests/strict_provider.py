"""A strict OpenAI-compatible provider on the loopback interface, for tests to talk to.

It records every request and refuses with 400 what strict providers refuse (`strict_rules`); a brain says
what it answers otherwise (`strict_replies`). `strict_process` runs one in a process of its own.
"""

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.strict_bodies import Body, read_strictly
from tests.strict_dialects import DIALECTS, OF_BOTH_APIS, refused
from tests.strict_http import Listener
from tests.strict_overflows import OVERFLOWS
from tests.strict_replies import (
    Answered,
    Brain,
    Fault,
    Reply,
    invalid,
    script,
)
from tests.strict_responses import RESPONSES_PATH, ResponsesSide, as_chat, is_for_responses, written_out
from tests.strict_responses_replies import RESPONSES_OVERFLOWS, response, response_events
from tests.strict_rules import output_limit, prompt_tokens, violations
from tests.strict_shapes import PLAIN, Shape
from tests.strict_streams import chunk_of, shaped
from tests.strict_usage import usage_report


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
        no_tools: How it says that it has no tools, a name in `NO_TOOLS`.
        no_formats: How it says that it has no formats of answers, a name in `NO_FORMATS`.
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
        no_tools: str = "ollama",
        no_formats: str = "openai",
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
        self.no_tools, self.no_formats = no_tools, no_formats
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
        self._http = Listener(self)
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
        return self.pages.get(path.partition("?")[0], invalid(404, f"no such path: {path}"))

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

    def completed(self, body: Body, reply: Reply) -> Body:
        """The body of a reply in one piece."""
        usage = self.report(body, reply)
        if is_for_responses(body):
            return response(body, reply, self.responses.output(reply), usage)
        choice = {"index": 0, "message": reply.message(), "finish_reason": reply.finish_reason}
        whole = chunk_of(body, choices=[choice]) | {"object": "chat.completion"}
        return whole | ({} if usage is None else {"usage": usage})

    def _listed(self) -> Body:
        model = {"id": self.model or "strict", "object": "model"}
        return {"object": "list", "data": [model]}

    def _thought(self, body: Body) -> Answered:
        try:
            reply = self.brain(as_chat(body) if is_for_responses(body) else body)
        except Exception as error:  # noqa: BLE001 — whatever a test's own brain raises fails that test at exit
            self.failures.append(error)
            return invalid(400, f"the brain of this test failed: {error}")
        return Reply(text=reply) if isinstance(reply, str) else reply

    def _at_the_door(self, path: str, headers: Mapping[str, str]) -> Fault | None:
        if path.partition("?")[0] not in ("/v1/chat/completions", RESPONSES_PATH):
            return invalid(404, f"no such path: {path}")
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return invalid(401, f"Incorrect API key provided: {headers.get('authorization')}")
        return None

    def _judged(self, raw: bytes) -> tuple[Body | None, list[str]]:
        try:
            body = read_strictly(raw)
        except ValueError as error:
            return None, [f"V6 the body is no strict JSON in UTF-8: {error}"]
        if is_for_responses(body):
            body = written_out(body)
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
        return invalid(400, "; ".join(broken))

    def _unknown(self, body: Body) -> Fault | None:
        """The refusal of a field or a model that this server does not know."""
        if self.model is not None and body.get("model") != self.model:
            return invalid(404, f"The model {body.get('model')!r} does not exist")
        modes = self.dialects & OF_BOTH_APIS if is_for_responses(body) or not body else self.dialects
        return refused(
            body,
            modes=modes,
            refuses=self.refuses,
            wording=self.wording,
            most_output=self.most_output,
            no_tools=self.no_tools,
            no_formats=self.no_formats,
        )
