"""A provider that refuses what one test is about, in the words of that test."""

from collections.abc import Callable, Mapping

from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault


class Refusing(StrictProvider):
    """Answers as `brain` does, but says `said` to each request of which `refuses` is true."""

    def __init__(
        self,
        refuses: Callable[[Body], bool],
        said: Answered,
        brain: Callable[[Body], Answered | str] = lambda _: "ok",
    ) -> None:
        super().__init__(brain)
        self._refuses, self._said = refuses, said

    def answer(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[Answered, Body]:
        reply, body = super().answer(path, headers, raw)
        return (self._said if self._refuses(body) else reply), body


def refusal(message: str, param: str | None = None, *, status: int = 400) -> Fault:
    """A refusal as OpenAI words one."""
    return Fault(status=status, body=error(message, param))


def error(message: str, param: str | None = None) -> Body:
    """The body of a refusal as OpenAI words one."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}
