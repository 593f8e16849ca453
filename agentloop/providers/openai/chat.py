"""`OpenAIChat`, a model behind chat completions: the chunks of an answer merged, and how requests are made.

An answer in one piece is one chunk here, so that both ways give the same message.

The words in which servers say why an answer ended are brought to those of OpenAI. DeepSeek, Mistral, Z.ai and
gateways to Anthropic and Gemini have words of their own; one not known here is passed on as it is. Documented
at https://api-docs.deepseek.com/api/create-chat-completion, https://docs.mistral.ai/api/,
https://docs.z.ai/api-reference/llm/chat-completion,
https://docs.claude.com/en/api/handling-stop-reasons and
https://ai.google.dev/api/generate-content#FinishReason.
"""

import re
from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI

from agentloop._plumbing.strict_json import cleaned
from agentloop.context import for_chat_completions
from agentloop.errors import BadAnswerError, ModelUnavailableError, UsageError
from agentloop.messages import INLINE_REASONING, Json, Message, Usage
from agentloop.models import CUT_SHORT, Answer, ModelRequest
from agentloop.providers.openai.chat_parts import GrowingCalls, GrowingContent, GrowingFields
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Body, Posted, ServedModel
from agentloop.providers.openai.fields import OWN_FIELDS, fields_for
from agentloop.providers.openai.schemas import answer_format
from agentloop.providers.openai.sse import (
    BROKEN_OFF,
    Ending,
    ServerEvent,
    ServerSaidError,
    decoded,
    is_object,
    said_in,
)

WINDOW_FULL = "model_context_window_exceeded"
"""The answer ended since nothing more fits into the window."""

_SAME = {
    "max_tokens": "length",
    "model_length": "length",
    WINDOW_FULL: "length",
    "sensitive": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
}
_GIVEN_UP = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled"})
"""The server ended the answer for a reason of its own, which may pass."""

_NONE_YET = frozenset({"", "null", "none"})
_OURS = frozenset({"stop", "tool_calls", "function_call", *_SAME.values(), *_GIVEN_UP})


def finish_of(word: object) -> str | None:
    """The server's word in the words of OpenAI; None where the answer goes on."""
    if not isinstance(word, str) or (lower := word.lower()) in _NONE_YET:
        return None
    return lower if lower in _OURS else _SAME.get(lower, word)


class GrowingFinish:
    """What the choices of a stream have said of its end so far.

    Some servers give each piece the reason for which the answer ends, as if it were the last. So a word of
    the end is `sure` only where all that was said, text or calls, came before the first such word. Where
    some of it came with one it is `likely`: the answer ends there unless more is said without a word.

    What was sure is made likely by text behind it, and undone by a call behind it.

    An answer that was cut short stays so, whatever a server says of its end behind that.
    """

    def __init__(self) -> None:
        self.word: str | None = None
        self.is_over = False
        self.window_full = False
        self._added_without = False
        self._said = False
        self._said_since = False
        self._was_sure = False

    @property
    def sure(self) -> bool:
        """Whether the answer has ended, as far as words go."""
        return self.is_over and self._said and not self._said_since

    @property
    def likely(self) -> bool:
        """Whether it has ended, unless this server says so of each piece."""
        return self.is_over and (self._said or self._added_without or self.word in CUT_SHORT)

    def note(self, word: object, *, adds: bool, text: bool, calls: bool) -> None:
        """Take in the reason of one choice, which `adds` to the answer, and says `text` or `calls`."""
        finish, says = finish_of(word), text or calls
        self._said = self._said or says
        self._said_since = self._said_since or (says and (self.is_over or finish is not None))
        if finish is None:
            self._added_without = self._added_without or adds
            self._was_sure = self._was_sure and not calls
            self.is_over = self._was_sure or (self.is_over and not says)
            return
        self.is_over = True
        self._was_sure = self._was_sure or self.sure
        if self.word not in CUT_SHORT:
            self.word = finish
            self.window_full = str(word).lower() == WINDOW_FULL


_SAYS_WHY = ("message", "Message", "detail", "msg", "errors", "error_msg", "error_message")
_CODES = ("code", "error_code", "status", "status_code")
_SUCCESS = re.compile(r"0|200|success(ful(ly)?)?|succeeded|ok|成功", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,6}")


def check_no_error(chunk: Json) -> None:
    """Refuse what stands in place of an answer, in any of the forms in which servers say why.

    Raises:
        ServerSaidError: it is an error.
    """
    if chunk.get("error"):
        raise ServerSaidError({key: value for key, value in chunk.items() if key != "choices"})
    chunk = _as_others_say_it(chunk)
    why = next((chunk[key] for key in _SAYS_WHY if chunk.get(key)), None)
    if chunk.get("object") == "error" or not (why is None or _is_success(chunk, why)):
        raise ServerSaidError({**chunk, "message": why})


def _as_others_say_it(chunk: Json) -> Json:
    """The chunk with the words and the code that MiniMax puts into `base_resp`, where 0 is success.

    https://platform.minimax.io/docs/api-reference/text-post
    """
    base = chunk.get("base_resp")
    if not isinstance(base, dict) or not (code := base.get("status_code")):
        return chunk
    return {**chunk, "status_code": code, "message": base.get("status_msg") or str(code)}


def _is_success(chunk: Json, why: object) -> bool:
    """Whether a chunk that gives a reason says that all is well, as some servers do in each."""
    codes = [str(code) for name in _CODES if (code := chunk.get(name)) is not None]
    if codes:
        well = [code for code in codes if _SUCCESS.fullmatch(code)]
        return bool(well) and not any(code.isdecimal() for code in codes if code not in well)
    return bool(_SUCCESS.fullmatch(str(why).strip(" .!"))) or ("choices" in chunk and "usage" in chunk)


_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"
_TYPES = frozenset({"", "message", "error"})


class GrowingCompletion:
    """The first choice of a completion, as far as it has come; a lone one is taken whatever its place.

    `begun` says that there was a choice at all, and `size` is how many chunks added to the answer.
    """

    def __init__(self) -> None:
        self.begun = False
        self.size = 0
        self.finish = GrowingFinish()
        self.calls = GrowingCalls()
        self.given = self.calls.given
        self._usage: Usage | None = None
        self._content = GrowingContent()
        self._place: int | None = None
        self._fields = GrowingFields()
        self._by_deltas = False
        self._is_empty = False
        """Whether a completion came, or a chunk of one, that holds no choice."""
        self._is_other = False
        """Whether something else came, or a choice."""

    @property
    def ending(self) -> Ending:
        """What was said of the end; a call without arguments is still open where that is not sure."""
        is_cut = self.finish.word in CUT_SHORT
        if self.finish.sure and (is_cut or self.calls.are_whole_or_bare()):
            return Ending.SURE
        return Ending.IN_DOUBT if self.finish.likely and self.calls.are_begun() else Ending.OPEN

    def add(self, event: ServerEvent) -> str:
        if event.type not in _TYPES and not is_object(event.data):
            return ""
        said = said_in(event)
        if event.type == "error":
            check_no_error(said)
            raise ServerSaidError(said)
        return self._add_chunk(said)

    def _add_chunk(self, chunk: Json) -> str:
        if not (choices := self._choices(chunk)):
            return ""
        if self._place is None:
            self._place = min(map(_place, choices))
        for choice in choices:
            if _place(choice) == self._place:
                return self._add_choice(choice)
        return ""

    @classmethod
    def whole(cls, body: bytes) -> Answer:
        """The answer that comes in one piece; one without a choice is an answer that says nothing."""
        growing = cls()
        if choices := growing._choices(decoded(body)):
            growing._add_choice(min(choices, key=_place))
        return growing.answer()

    def ended(self, foreign: bytes, *, done: bool) -> Answer:
        # Nothing but the stream's own end may say so.
        may_be_done = done and (self.finish.word is not None or self.calls.are_whole())
        if self.begun and (may_be_done or self._has_ended()):
            return self.answer()
        if self.begun or not (done or foreign):
            raise ModelUnavailableError(BROKEN_OFF)
        return self.whole(foreign) if foreign else self.answer()

    def _has_ended(self) -> bool:
        """Whether it says its end, and surely where a call's arguments may be still to come."""
        finish = self.finish
        return finish.is_over and (finish.sure or finish.word in CUT_SHORT or self.calls.are_begun())

    def answer(self) -> Answer:
        """What has come, as one answer; it says nothing where a completion came without a choice."""
        if self._is_other and not (self.begun or self._is_empty):
            raise BadAnswerError(_NO_CHOICES)
        finish = self.finish.word
        if finish in _GIVEN_UP:
            raise ModelUnavailableError(f"the server gave up in an answer ({finish}): try again later")
        try:
            message = Message.from_openai(cleaned(self._message()))
        except UsageError as error:
            raise BadAnswerError(f"the server's answer cannot be kept: {error}") from error
        except RecursionError as error:
            raise BadAnswerError("the server's answer is nested too deep") from error
        return Answer(message=message, usage=self._usage, finish=finish)

    def _message(self) -> Json:
        calls = self.calls.to_openai()
        if self.finish.window_full and not (calls or self._content):
            raise ServerSaidError({"code": "context_length_exceeded", "message": WINDOW_FULL})
        said = {"role": "assistant"} | self._content.said(has_calls=bool(calls))
        thought = {INLINE_REASONING: self._content.thought} if self._content.thought else {}
        return said | ({"tool_calls": calls} if calls else {}) | thought | self._fields.joined()

    def _choices(self, chunk: Json) -> Sequence[Json]:
        choices = chunk.get("choices")
        choices = choices if isinstance(choices, list) else None
        if not choices or chunk.get("error") or chunk.get("object") == "error":
            check_no_error(chunk)
        if usage := chunk.get("usage"):
            self._note_usage(usage)
        if _is_without_choices(chunk):
            self._is_empty = True
        else:
            self._is_other = True
        return [choice for choice in choices or () if isinstance(choice, dict)]

    def _note_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage = Usage.from_openai(usage)

    def _add_choice(self, choice: Json) -> str:
        if error := choice.get("error"):
            raise ServerSaidError(error)
        self.begun = True
        if usage := choice.get("usage"):
            self._note_usage(usage)
        said = self._new_in(choice)
        if calls := bool(said.get("tool_calls")):
            (self.calls.add_deltas if self._by_deltas else self.calls.add_whole)(said["tool_calls"])
        text, adds = self._add_said(said)
        self.size += adds or calls
        self.finish.note(choice.get("finish_reason"), adds=adds or calls, text=bool(text), calls=calls)
        return text

    def _new_in(self, choice: Json) -> Json:
        """What a choice says that was not said before: some servers say all once more in the last chunk."""
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and (delta or not message):
            self._by_deltas = True
            return delta
        if not isinstance(message, dict) or self._by_deltas:
            return {}
        return message

    def _add_said(self, said: Json) -> tuple[str, bool]:
        """Take in what else a choice says; returns the text to show, and whether it added anything."""
        text, adds = "", False
        for key, value in said.items():
            if key == "content":
                text += self._content.add(value)
            elif key == "refusal":
                text += self._content.add_refusal(value)
            elif key not in ("role", "tool_calls"):
                adds = self._fields.add(key, value) or adds
        return text, adds or bool(text or said.get("content"))


def _is_without_choices(chunk: Json) -> bool:
    """Whether it is a completion, or a chunk of one, that holds no choice."""
    if "choices" in chunk:
        return chunk["choices"] is None or chunk["choices"] == []
    return str(chunk.get("object")).startswith("chat.completion") or isinstance(chunk.get("usage"), dict)


def _place(choice: Json) -> int:
    """The place of a choice; what is none, and what is below the first, is the first."""
    index = choice.get("index")
    if isinstance(index, str) and _DIGITS.fullmatch(index):
        return int(index)
    return max(0, index) if isinstance(index, int) else 0


class OpenAIChat(ServedModel):
    """A model behind chat completions.

    Args:
        model: Its name, as the server knows it.
        base_url: The API's address; by default `OPENAI_BASE_URL` of the environment, else OpenAI's own.
        api_key: By default `OPENAI_API_KEY` of the environment; with a base URL and no key a placeholder
            is sent, as servers on one's own machine want none.
        headers: Sent with each request to that address, and to no other, such as a gateway's token. They are
            kept secret like the key; an `Authorization` among them is sent in its place.
        window: The most tokens a request and its answer may have together, such as 128000 or "128k".
        price: What it costs, where that is not what is published for a model of that name.
        max_output_tokens: The most tokens of an answer; no limit is sent where it is None.
        stream: Whether answers are asked for piece by piece.
        retry: How failures that may pass are tried again.
        timeout_seconds: The longest silence of the server: 300 by default. One that goes on saying that it
            lives, and nothing more, is waited for four times as long.
        temperature: Sent where it is not None.
        extra_body: Further fields of every request.

    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Raises:
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "chat"

    _growing = GrowingCompletion

    def _body(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"messages": for_chat_completions(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body[dialect.limit_field] = limit
        if request.answer_schema is not None:
            wanted = answer_format(request.answer_schema)
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if streams:
            body["stream_options"] = OWN_FIELDS["stream_options"]
        return {**fields_for(self._fields, request), **body}

    def _post(self, client: AsyncOpenAI, streams: bool, body: Body) -> Posted:
        create = client.chat.completions.with_streaming_response.create
        return create(model=self._choice.model, messages=[], stream=streams, extra_body=body)
