"""Calls that a model writes into its text, from servers without a parser: run, told of once, or text."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import Agent, Limits, Runner, tool
from agentloop.messages import Message
from agentloop.models import TextCalls, faults_in, faulty_as_text, with_calls
from agentloop.testing import ScriptedModel
from tests.counted_tool_kit import ran, runner_of, watched_texts
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Drop, Reply, calling

LOOK = '{"name": "look", "arguments": {"path": "one"}}'
LOOKING = LOOK.replace("arguments", "parameters")
FORMS = {
    "Hermes, Qwen": f"<tool_call>\n{LOOK}\n</tool_call>",
    "its end is missing": f"<tool_call>\n{LOOK}",
    "as the API has it": f'<tool_call>{{"type": "function", "function": {LOOK}}}</tool_call>',
    "arguments as text": '<tool_call>{"name": "look", "arguments": "{\\"path\\": \\"one\\"}"}</tool_call>',
    "Qwen3-Coder": "<tool_call>\n<function=look>\n<parameter=path>\none\n"
    "</parameter>\n</function>\n</tool_call>",
    "Qwen3-Coder, bare": "<function=look>\n<parameter=path>\none\n</parameter>\n</function>\n</tool_call>",
    "GLM": "<tool_call>look\n<arg_key>path</arg_key>\n<arg_value>one</arg_value>\n</tool_call>",
    "Llama 3": f"<|python_tag|>{LOOKING}<|eom_id|>",
    "Llama 3.1": '<function=look>{"path": "one"}</function>',
    "Mistral": f"[TOOL_CALLS] [{LOOK}]",
    "Mistral, newer": '[TOOL_CALLS]look[ARGS]{"path": "one"}',
    "Mistral, between": '[TOOL_CALLS]look{"path": "one"}',
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n"
    '```json\n{"path": "one"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "DeepSeek 3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>"
    '{"path": "one"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>"
    '{"path": "one"}<|tool_call_end|><|tool_calls_section_end|>',
    "Granite, Phi": f"<|tool_call|>[{LOOK}]<|/tool_call|>",
    "without marks": f" {LOOKING}\n",
    "a list without marks": f"[\n  {LOOK}\n]",
}
TEXTS = [
    f"Write `{FORMS['Hermes, Qwen']}` for it.",
    f"So:\n```\n{FORMS['Hermes, Qwen']}\n```\nThat is all.",
    f"A model says <tool_call>{LOOK}</tool_call> there.",
    "The <tool_call> tag and [TOOL_CALLS] begin a call, <function=look> too.",
    '{"name": "Ann", "parameters": {"age": 7}}',
    '{"name": "look", "arguments": {"path": "one"}, "price": 3}',
    '{"name": "look", "arguments": ["one"]}',
    '{"name": "look"}',
    '{"name": "look", "argum',
    "<tool_call>",
    "a < b <tool",
    "``<tool_call>``",
    f"~~~\n{FORMS['Hermes, Qwen']}\n~~~",
    f"````\n```\n{FORMS['Hermes, Qwen']}\n```\n````",
    f"So:\n\n    {FORMS['Llama 3']}",
    f"> {FORMS['Llama 3']}",
    f"Never write {FORMS['Hermes, Qwen']}",
    f"maybe\n{FORMS['Hermes, Qwen']}\nno, rather not</think>I did nothing.",
    f"<thinking>\n{FORMS['Hermes, Qwen']}\n</thinking>\nI did nothing.",
]
TORN = [
    '<tool_call>\n{"name": "look", "arguments": {"path": "on',
    '<tool_call>{"name": "look", "arguments": {"path": "one"}</tool_call>',
    '<tool_call>{"name": "look", "arguments": "one"}</tool_call>',
    "<tool_call>[3]</tool_call>",
    "<function=look>\n<parameter=path>\none",
    '[TOOL_CALLS]look[ARGS]{"path": "one"',
]
UNKNOWN = '<tool_call>{"name": "peek", "arguments": {}}</tool_call>'

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tags": {"type": "array"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]


def read(pieces: Sequence[str]) -> tuple[str, Message, list[str | None]]:
    """What is shown of these pieces, before and behind their end, the message and what is wrong with it."""
    texts = TextCalls(TOOLS)
    shown = "".join(texts.add(piece) for piece in pieces)
    found = texts.read(Message.assistant("".join(pieces)))
    message = with_calls(Message.assistant("".join(pieces)), found)
    return shown + texts.rest(message), message, list(faults_in(found))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_it_is_run_and_not_shown(form: str, stream: bool) -> None:
    answers = [
        Reply(text="I look.\n" + form if form.lstrip()[0] not in "[{" else form, piece_chars=3),
        "Done.",
    ]
    with StrictProvider(answers) as server:
        runner = runner_of(server, stream=stream)
        seen = [event async for event in runner.stream("go", session_id="s")]
        assert server.refusals == []
    assert ran == {"one": 1}
    said = "I look." if answers[0].text.startswith("I look.") else ""  # type: ignore[union-attr]
    assert watched_texts(seen) == [said, "Done."]
    asked, answered = server.bodies[1]["messages"][-2:]
    [call] = asked["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"path": "one"})
    assert (answered["role"], answered["tool_call_id"], call["id"]) == ("tool", "call_2", "call_2")
    assert answered["content"] == "seen one"
    assert asked["content"] == said


@pytest.mark.parametrize("form", [*FORMS.values(), *TORN, *TEXTS, UNKNOWN])
def test_wherever_it_is_cut_it_is_read_alike(form: str) -> None:
    for text in (form, f"Well.\n\n{form}\nSo."):
        whole = read([text])
        assert whole[0] == whole[1].text
        assert all(read([text[:at], text[at:]]) == whole for at in range(len(text)))
        assert read(list(text)) == whole


fragments = st.lists(
    st.sampled_from(
        [
            "`",
            "```",
            "\n",
            " ",
            "Well",
            "{",
            LOOK,
            *FORMS.values(),
            *TORN,
            *TEXTS,
            "<tool_call>",
            "</tool_call>",
        ]
    ),
    max_size=6,
)


@given(fragments, st.integers(1, 40))
@example(["```", "`", "\n", LOOK], 1)
@pytest.mark.many(200)
def test_what_is_shown_is_what_is_kept(parts: list[str], size: int) -> None:
    text = "".join(parts)
    shown, message, _ = read([text[at : at + size] for at in range(0, len(text), size)])
    assert message.tool_calls or message.text == text
    assert shown.strip() == message.text.strip()


@pytest.mark.parametrize("text", TEXTS)
async def test_what_may_be_text_is_text(text: str, stream: bool) -> None:
    with StrictProvider([Reply(text=text, piece_chars=2)]) as server:
        runner = runner_of(server, stream=stream)
        seen = [event async for event in runner.stream("go")]
    assert ran == {}
    assert watched_texts(seen) == [text]


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
async def test_without_tools_all_is_text(text: str) -> None:
    result = await Runner(Agent(ScriptedModel([text])), transcripts=None).run("go")
    assert result.output == text


async def test_beside_calls_in_order_the_text_is_text(stream: bool) -> None:
    text = FORMS["Hermes, Qwen"]
    with StrictProvider([Reply(text=text, calls=(calling("look", path="two"),)), "Done."]) as server:
        runner = runner_of(server, stream=stream)
        seen = [event async for event in runner.stream("go")]
    assert ran == {"two": 1}
    assert watched_texts(seen) == [text, "Done."]


async def test_several_run_side_by_side_and_the_text_before_them_stays(stream: bool) -> None:
    two = LOOK.replace("one", "two")
    text = f"I look.\n<tool_call>{LOOK}</tool_call>\n<tool_call>{two}\n{two}</tool_call>"
    with StrictProvider([text, "Done."]) as server:
        result = await runner_of(server, stream=stream).run("go")
        asked = server.bodies[1]["messages"][1]
        assert server.refusals == []
    assert (ran, result.output) == ({"one": 1, "two": 2}, "Done.")
    assert [call["id"] for call in asked["tool_calls"]] == ["call_2", "call_3", "call_4"]
    assert asked["content"] == "I look."


async def test_one_that_more_is_said_behind_is_not_run_and_told_of(stream: bool) -> None:
    quoted = f"The file says:\n\n{FORMS['Hermes, Qwen']}\n\nSo I did nothing."
    with StrictProvider([quoted, FORMS["Hermes, Qwen"], "Done."]) as server:
        result = await runner_of(server, stream=stream).run("go")
        assert server.refusals == []
        asked, told = server.bodies[1]["messages"][-2:]
    assert (result.output, ran) == ("Done.", {"one": 1})
    assert asked["content"] == "The file says:\n\nSo I did nothing."
    assert "more text follows it" in told["content"]


NESTED = (
    "<tool_call>look" + "<arg_key>a</arg_key><arg_value>" * 4_000,
    "[TOOL_CALLS]        " * 6_000,
    "[TOOL_CALLS]" * 10_000,
    f"x <tool_call>{LOOK}</tool_call> y\n" * 2_000,
    f"<tool_call>{LOOK}</tool_call>\ny\n" * 2_000,
    "x <function=look>" * 6_000,
    '<tool_call>{"name": ' * 6_000,
)


@pytest.mark.parametrize("text", NESTED, ids=range(len(NESTED)))
@pytest.mark.whole
def test_l11_what_a_model_in_a_loop_writes_is_read(text: str) -> None:
    pieces = TextCalls(TOOLS).read(Message.assistant(text))
    assert len(pieces) < 10_000


@pytest.mark.parametrize("text", [*TORN, UNKNOWN])
async def test_one_that_cannot_run_is_told_of_once_a_run(text: str, stream: bool) -> None:
    with StrictProvider([text, text, FORMS["Llama 3"], "Done."]) as server:
        runner = runner_of(server, stream=stream)
        seen = [event async for event in runner.stream("go", session_id="s")]
        assert watched_texts(seen) == ["", text]
        asked, told = server.bodies[1]["messages"][-2:]
        assert told["tool_call_id"] == asked["tool_calls"][0]["id"]
        assert "not run: this call was written into the text" in told["content"]
        assert "look" in told["content"]
        result = await runner.run("again", session_id="s")
        assert server.refusals == []
    assert (result.output, ran) == ("Done.", {"one": 1})


async def test_the_next_run_is_told_anew() -> None:
    with StrictProvider([UNKNOWN, "Well.", UNKNOWN, "Well."]) as server:
        runner = runner_of(server)
        for _ in range(2):
            assert (await runner.run("go", session_id="s")).output == "Well."
    assert len(server.requests) == 4


async def test_beside_one_that_cannot_run_the_others_run(stream: bool) -> None:
    text = f"{FORMS['Hermes, Qwen']}\n{UNKNOWN}"
    with StrictProvider([text, text, "Done."]) as server:
        result = await runner_of(server, stream=stream).run("go")
        assert server.refusals == []
    assert (result.output, ran) == ("Done.", {"one": 2})
    results = [each["content"] for each in server.bodies[2]["messages"] if each["role"] == "tool"]
    assert [text.startswith("not run") for text in results] == [False, True, False]


async def test_one_that_was_cut_off_is_not_run(stream: bool) -> None:
    cut = Reply(text=FORMS["Hermes, Qwen"], finish="length")
    with StrictProvider([cut, Reply(text=TORN[0], finish="length"), "Done."]) as server:
        result = await runner_of(server, stream=stream).run("go")
    assert (result.output, ran) == ("Done.", {})
    assert "cut off by the output limit" in str(server.bodies[2]["messages"][-1])


async def test_what_broke_off_in_the_midst_of_one_is_void() -> None:
    text = "I look.\n" + FORMS["Hermes, Qwen"]
    with StrictProvider([Drop(reply=Reply(text=text, piece_chars=4), events=8), text, "Done."]) as server:
        runner = runner_of(server)
        seen = [event async for event in runner.stream("go")]
    assert (ran, watched_texts(seen)) == ({"one": 1}, ["I look.", "Done."])


@tool
def count(path: str, number: int, tags: list[str], note: str | None = None) -> str:
    """Count."""
    return repr((path, number, tags, note))


async def test_values_in_tags_are_what_the_schema_takes() -> None:
    values = {"path": "3", "number": "3", "tags": '["a", "b"]', "note": "[4]"}
    told = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    model = ScriptedModel([f"<function=count>\n{told}</function>", "Done."])
    await Runner(Agent(model, tools=[count]), transcripts=None).run("go")
    assert model.requests[1].messages[-1]["content"] == repr(("3", 3, ["a", "b"], "[4]"))


async def test_a_model_that_does_nothing_else_ends_at_a_limit() -> None:
    def answer(_: Body) -> str:
        return FORMS["Hermes, Qwen"]

    with StrictProvider(answer) as server:
        result = await runner_of(server).run("go", limits=Limits(steps=4))
    assert (result.status, ran) == ("limit", {"one": 4})


def test_what_cannot_run_can_be_left_as_text() -> None:
    texts = TextCalls(TOOLS)
    pieces = faulty_as_text(texts.read(Message.assistant(f"{UNKNOWN} {FORMS['Llama 3']}")))
    message = with_calls(Message.assistant(""), pieces)
    assert (message.text.strip(), len(message.tool_calls)) == (UNKNOWN, 1)


def test_a_long_answer_is_read_piece_by_piece() -> None:
    texts = TextCalls(TOOLS)
    shown = [texts.add(piece) for piece in ["a <b", " c`d`", "\n"] * 2_000]
    assert max(map(len, shown)) < 12
