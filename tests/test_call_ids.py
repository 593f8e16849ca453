"""Ids of calls on the wire: a server gets its own as they came, and those of another as it takes them."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Message, ModelRefusedError, OpenAIChat, OpenAIResponses, RetryPolicy, Runner
from agentloop.events import MessageRecord
from agentloop.messages import ToolCall
from agentloop.providers.openai.dialect import ID_FORMS, IdForm, with_ids
from agentloop.stores import SQLiteStore
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Call, Fault, Reply, invalid

ONCE = RetryPolicy(attempts=1)
OF_KIMI = "functions.look:0"
OF_A_GATEWAY = "call_" + "a1" * 30 + "__thought__" + "Zm9v" * 60
OF_OPENAI = "call_abcdefghijklmnopqrstuvwx"
FORMS = {"short": r"[a-zA-Z0-9_-]{1,40}", "nine letters": r"[a-zA-Z0-9]{9}"}


def look(x: str = "") -> str:
    """Look."""
    return f"saw {x}"


def asking(*ids: str) -> Reply:
    return Reply(
        calls=tuple(Call(id=name, name="look", arguments=json.dumps({"x": name[:3]})) for name in ids)
    )


def ids_in(body: Body) -> tuple[list[str], list[str]]:
    """The ids of the calls, and those of the results."""
    asked = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    return asked, [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


async def ran(provider: StrictProvider, folder: Path, *prompts: str) -> None:
    """These runs of one session, one model for all."""
    model = OpenAIChat("m", base_url=provider.url, api_key="sk-x", retry=ONCE, window="32k")
    runner = Runner(Agent(model, tools=[look]), store=f"sqlite:///{folder}/s.db", transcripts=None)
    for prompt in prompts:
        await runner.run(prompt, session_id="s")
    await model.close()


async def ids_in_the_log(folder: Path) -> list[str]:
    store = SQLiteStore(folder / "s.db")
    said = [
        record.event.message for record in await store.read("s") if isinstance(record.event, MessageRecord)
    ]
    await store.close()
    return [call.id for message in said for call in message.tool_calls]


@pytest.mark.parametrize("name", [OF_KIMI, OF_A_GATEWAY, OF_OPENAI])
def test_a_servers_own_ids_go_back_to_it_as_they_came(tmp_path: Path, name: str) -> None:
    with StrictProvider([asking(name), "ok", "ok"]) as provider:
        asyncio.run(ran(provider, tmp_path, "hi", "again"))
    assert [ids_in(body) for body in provider.bodies[1:]] == [([name], [name])] * 2


@pytest.mark.parametrize(
    ("name", "mode", "form"),
    [
        (OF_A_GATEWAY, "ids-of-40", "short"),
        (OF_KIMI, "ids-of-words", "short"),
        (OF_OPENAI, "ids-of-9", "nine letters"),
        (OF_KIMI, "ids-of-9", "nine letters"),
    ],
)
def test_a_session_goes_on_with_a_server_that_takes_other_ids(
    tmp_path: Path, name: str, mode: str, form: str
) -> None:
    with StrictProvider([asking(name, "abcdefghi"), "ok"]) as first:
        asyncio.run(ran(first, tmp_path, "hi"))
    with StrictProvider(["ok", asking("AbCdEfGh1"), "ok", "ok"], modes=[mode]) as second:
        asyncio.run(ran(second, tmp_path, "go on", "more", "last"))
    refused, *taken = [ids_in(body) for body in second.bodies]
    assert refused == ([name, "abcdefghi"],) * 2
    assert len(taken) == 4
    (new, kept) = taken[0][0]
    assert re.fullmatch(FORMS[form], new)
    assert kept == "abcdefghi", "one that is fine stays"
    assert [asked[:2] for asked, _ in taken] == [[new, kept]] * 4, "one id in all requests"
    assert all(asked == answered for asked, answered in taken)
    assert taken[-1][0] == [new, kept, "AbCdEfGh1"]
    assert asyncio.run(ids_in_the_log(tmp_path)) == [name, "abcdefghi", "AbCdEfGh1"]


@pytest.mark.parametrize("name", ["abcdefghi", ""])
def test_ids_of_nine_that_come_twice_or_not_at_all_end_no_run(tmp_path: Path, name: str) -> None:
    with StrictProvider([asking(name), asking(name), "fin"], modes=["ids-of-9"]) as provider:
        asyncio.run(ran(provider, tmp_path, "hi"))
    assert len(provider.bodies) == 4, "one refusal"
    asked, answered = ids_in(provider.bodies[-1])
    assert len({*asked}) == len(asked) == 2
    assert asked == answered
    assert all(re.fullmatch(FORMS["nine letters"], each) for each in asked)


TEMPLATE = "Error rendering the chat template: Tool call IDs should be alphanumeric strings with length 9!"
BEDROCK = (
    "2 validation errors detected: Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to "
    "satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
)


@pytest.mark.parametrize(
    ("status", "words"), [(500, TEMPLATE), (400, TEMPLATE), (400, BEDROCK), (422, BEDROCK)]
)
def test_refusals_in_other_words(tmp_path: Path, status: int, words: str) -> None:
    replies: list[Answered | str] = [asking(OF_KIMI), Fault(status=status, body={"message": words}), "ok"]
    with StrictProvider(replies) as provider:
        asyncio.run(ran(provider, tmp_path, "hi"))
    assert ids_in(provider.bodies[1])[0] == [OF_KIMI]
    form = "nine letters" if words == TEMPLATE else "short"
    assert re.fullmatch(FORMS[form], ids_in(provider.bodies[2])[0][0])


@pytest.mark.parametrize(
    ("name", "words", "requests"),
    [
        ("abcdefghi", "Tool call id was abcdefghi but must be a-z, A-Z, 0-9, with a length of 9.", 1),
        (OF_KIMI, "tool_call_id: no such call: it must be followed by its result", 1),
        (OF_KIMI, "the prompt is refused", 1),
        (OF_KIMI, "Invalid 'messages[1].tool_calls[0].id': string too long.", 3),
    ],
)
def test_a_refusal_that_no_other_ids_help_is_final(
    tmp_path: Path, name: str, words: str, requests: int
) -> None:
    def brain(body: Body) -> Answered:
        return invalid(400, words) if ids_in(body)[0] else asking(name)

    with StrictProvider(brain) as provider, pytest.raises(ModelRefusedError):
        asyncio.run(ran(provider, tmp_path, "hi"))
    assert len(provider.bodies) == 1 + requests


def test_the_responses_api_gets_other_ids_after_such_a_refusal_too() -> None:
    def brain(body: Body) -> Answered:
        asked, _ = ids_in(body)
        if not asked:
            return asking(OF_KIMI)
        fault = invalid(400, f"Invalid 'input[1].call_id': '{asked[0]}' must have only letters and digits.")
        return Reply(text="ok") if re.fullmatch(FORMS["short"], asked[0]) else fault

    async def run(url: str) -> None:
        model = OpenAIResponses("m", base_url=url, api_key="sk-x", retry=ONCE, window="32k")
        await Runner(Agent(model, tools=[look]), transcripts=None).run("hi")
        await model.close()

    with StrictProvider(brain) as provider:
        asyncio.run(run(provider.url))
    shown = [[item["call_id"] for item in body["input"] if "call_id" in item] for body in provider.bodies[1:]]
    assert shown[0] == [OF_KIMI] * 2
    assert len({*shown[1]}) == 1
    assert re.fullmatch(FORMS["short"], shown[1][0])


names = st.text(max_size=50) | st.text("aB3_-.:", min_size=1, max_size=12)


def said(ids: Sequence[str]) -> Iterator[Body]:
    for name in ids:
        yield Message.assistant(None, [ToolCall(id=name, name="look")]).to_openai()
        yield Message.tool(name, "r").to_openai()


@given(st.lists(names, unique=True, max_size=12), st.data(), st.sampled_from(ID_FORMS[1:]))
def test_ids_in_a_form_fit_differ_and_stay(ids: list[str], data: st.DataObject, form: IdForm) -> None:
    sent, answered = ids_in({"messages": with_ids(list(said(ids)), form)})
    assert sent == answered
    assert len({*sent}) == len(ids)
    assert all(re.fullmatch(FORMS[form], each) for each in sent)
    kept = data.draw(st.lists(st.sampled_from(ids), unique=True) if ids else st.just([]))
    assert ids_in({"messages": with_ids(list(said(kept)), form)})[0] == [
        sent[ids.index(each)] for each in kept
    ]
    again = with_ids(with_ids(list(said(ids)), form), form)
    assert json.dumps(again) == json.dumps(with_ids(list(said(ids)), form))
