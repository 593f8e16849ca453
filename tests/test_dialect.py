"""What is found out of a server is kept: a refusal that comes late takes nothing of it back."""

import pytest

from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.refusals import Refusal
from tests.strict_bodies import Body

NO_DEVELOPER = "Unexpected role 'developer': developer messages are not supported."
NO_SYSTEM = "This model does not support system messages."


def refusal(message: str) -> Refusal:
    """A server's 400 with these words."""
    return Refusal.of(400, {"error": {"message": message}})


def saying(role: str) -> Body:
    return {"messages": [{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hello"}]}


def test_instructions_in_front_stay_there_whatever_an_older_request_is_told() -> None:
    by_system = Dialect().after(refusal(NO_DEVELOPER), saying("developer"))
    in_front = by_system.after(refusal(NO_SYSTEM), saying("system"))
    assert (by_system.instructions, in_front.instructions) == ("system", "in front")
    assert in_front.after(refusal(NO_DEVELOPER), saying("developer")) == in_front
    assert in_front.after(refusal(NO_SYSTEM), saying("system")) == in_front


@pytest.mark.parametrize("named", [50_000, 8_192])
def test_the_longest_answer_only_gets_shorter(named: int) -> None:
    sent: Body = {"max_tokens": 100_000, **saying("user")}
    learnt = Dialect().after(refusal("max_tokens must be at most 8192"), sent)
    assert learnt.most_output == 8_192
    assert learnt.after(refusal(f"max_tokens must be at most {named}"), sent) == learnt
    assert (
        learnt.after(refusal("max_tokens must be at most 4096"), {"max_tokens": 8_192}).most_output == 4_096
    )
