"""Everything agentloop raises on purpose, as one tree.

    AgentLoopError                    what every error of ours is
    ├── UsageError                    the call or the configuration is wrong; nothing was sent
    │   ├── SessionNotFoundError      no stored session has that id, prefix or title
    │   └── ToolDefinitionError       a function cannot become a tool, or two tools share a name
    ├── ModelError                    the model gave no usable answer
    │   ├── ModelUnavailableError     connection, 408, 409, 5xx, 429 but for unpaid bills: later may work
    │   ├── ModelRefusedError         any other 4xx: the same request will be refused again
    │   ├── ContextTooLongError       the server says that the request exceeds its window
    │   ├── BadAnswerError            an answer came that is no answer
    │   │   └── SpoiltAnswerError     the server cannot read what its model said: another try may help
    │   └── SummaryRefusedError       a text came that cannot stand for the conversation
    ├── OutputError                   no answer of the type that was asked for, after all tries
    ├── ContextOverflowError          the context cannot be made to fit, after the last rung
    ├── SessionBusyError              another run works on the session: later may work; nothing was stored
    └── StoreError                    a session could not be read or written; an append is whole or absent
        ├── DamagedError              what is stored is damaged: restore a copy, trying again does not help
        ├── ConflictError             the log was not as long as the writer thought; nothing was written
        └── TakenOverError            another run began on the session and goes on with it; this one stopped

`RetryTool` stands outside the tree: tools raise it to speak to the model, and it never reaches a caller.
"""


class AgentLoopError(Exception):
    """What every error of agentloop is; its text is one line that says what is wrong and what to do.

    It can be pickled and copied, with its text and its fields: it may come out of another process.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Python's own way calls `__init__` with the text alone, and not with the fields beside it.
        return _restored, (type(self), self.args), self.__dict__


class UsageError(AgentLoopError, ValueError):
    """The call or the configuration is wrong; nothing was sent."""


class SessionNotFoundError(UsageError):
    """No stored session has that id, prefix or title."""


class ToolDefinitionError(UsageError):
    """A function cannot become a tool, or two tools share a name."""


class ModelError(AgentLoopError):
    """The model gave no usable answer."""


class ModelUnavailableError(ModelError):
    """The server could not be reached or is overloaded, after all retries; later may work.

    `retry_after_seconds` is the server's own advice, None where it gave none.
    """

    def __init__(self, text: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


class ModelRefusedError(ModelError):
    """The server refused the request for good; `status` is the HTTP status.

    `takes_no_tools` says that it refused all tools, whatever the messages say.
    """

    def __init__(self, text: str, *, status: int, takes_no_tools: bool = False) -> None:
        super().__init__(text)
        self.status, self.takes_no_tools = status, takes_no_tools


class ContextTooLongError(ModelError):
    """The server says that the request exceeds its window.

    `window` and `tokens` are the limit and the request's size in tokens as the server named them, None
    where it named none. `output_tokens` is the part of `tokens` that is the longest answer, where the server
    counted that in and named it apart.
    """

    def __init__(
        self,
        text: str,
        *,
        window: int | None = None,
        tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        super().__init__(text)
        self.window = window
        self.tokens = tokens
        self.output_tokens = output_tokens


class BadAnswerError(ModelError):
    """An answer came that is no answer: not JSON, no choices, or broken off half way."""


class SpoiltAnswerError(BadAnswerError):
    """The server cannot read what its own model said, such as a call of a tool; another try may help.

    A run asks again at once, within the bound that it has for empty answers.
    """


class SummaryRefusedError(ModelError):
    """The model's text cannot stand for the conversation; the text says why."""


class OutputError(AgentLoopError):
    """The model gave no answer of the type asked for, after all tries; `text` is the last it gave."""

    def __init__(self, why: str, *, text: str) -> None:
        super().__init__(why)
        self.text = text


class ContextOverflowError(AgentLoopError):
    """The context cannot be made to fit the window; the text names what is too big.

    `tokens` is the smallest request that could be built, `window` what the model takes, both in tokens.
    """

    def __init__(self, text: str, *, tokens: int, window: int) -> None:
        super().__init__(text)
        self.tokens = tokens
        self.window = window


class SessionBusyError(AgentLoopError):
    """Another run works on the session; nothing was stored and no model asked. Later may work."""


class StoreError(AgentLoopError):
    """A session could not be read or written.

    What was appended is in the log whole or not at all; whether it is, tells who reads the log.
    """


class DamagedError(StoreError):
    """What is stored is damaged, a record, a session's line in the list or the database; the text names it.

    Any other fault of a store tells nothing of what it holds.
    """


class ConflictError(StoreError):
    """The log was not as long as the writer thought; nothing was written.

    `expected` is the length the writer named, `actual` the log's length, both in records.
    """

    def __init__(self, session_id: str, *, expected: int, actual: int) -> None:
        why = (
            "somebody else wrote to it; open it again"
            if actual >= expected
            else "it was deleted meanwhile; nothing more is stored"
        )
        super().__init__(f"session {session_id!r} has {actual} records, not {expected}: {why}")
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class BegunAnewError(ConflictError):
    """The session was deleted, and another one has its id now; nothing was written to that one."""

    def __init__(self, session_id: str, *, length: int) -> None:
        super().__init__(session_id, expected=length, actual=length)
        self.args = (f"session {session_id!r} was deleted and begun anew meanwhile; nothing more is stored",)


class TakenOverError(StoreError):
    """Another run began on the session and goes on with it; this one has stopped and stores nothing more."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} was taken over by another run, which goes on with it; this one stopped"
        )
        self.session_id = session_id


class RetryTool(Exception):  # noqa: N818 — a signal to the model, named for what it asks
    """Raise it in a tool: the model is told to try again, with this text as the hint."""


def _restored(kind: type[AgentLoopError], args: tuple[object, ...]) -> AgentLoopError:
    return kind.__new__(kind, *args)
