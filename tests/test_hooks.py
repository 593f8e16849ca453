"""Callbacks around calls of models and tools: in order, in time, and none that fails lets a call through."""

import asyncio
import contextvars
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from agentloop import (
    Agent,
    Answer,
    Background,
    Callbacks,
    Deny,
    Message,
    ModelRequest,
    Runner,
    Secrets,
    ToolCall,
    Work,
    WorkOutcome,
)
from agentloop.errors import UsageError
from agentloop.events import MessageRecord
from agentloop.models import ModelPart
from agentloop.testing import ScriptedModel, calls
from agentloop.tools import RunContext

DELETE = calls(delete={"path": "a"})


class Disc:
    """A tool that does harm, and what it did."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def delete(self, path: str) -> str:
        """Delete a file."""
        self.gone.append(path)
        return f"{path} is gone, key hush-hush"


def runner_with(disc: Disc, *callbacks: Any, answers: Any = (DELETE, "done"), **options: Any) -> Runner:
    agent = Agent(ScriptedModel(answers), tools=[disc.delete])
    return Runner(agent, transcripts=None, callbacks=callbacks, **options)


async def results_in(runner: Runner) -> list[str]:
    said = [record.event for record in await runner.events("s")]
    return [
        each.message.text for each in said if isinstance(each, MessageRecord) and each.message.role == "tool"
    ]


async def test_a_call_is_denied_with_a_reason_for_the_model() -> None:
    disc = Disc()
    runner = runner_with(disc, Callbacks(before_tool=lambda call: Deny("not without asking")))
    result = await runner.run("go", session_id="s")
    assert (result.status, disc.gone) == ("answered", [])
    assert await results_in(runner) == ["not run: it was denied: not without asking"]


async def test_a_call_that_another_tool_makes_is_denied_too() -> None:
    disc = Disc()

    async def clean(context: RunContext[None]) -> str:
        """Clean the disc."""
        return (await context.call_tool("delete", {"path": "a"})).text

    def check(call: ToolCall) -> Deny | None:
        return Deny("not without asking") if call.name == "delete" else None

    agent = Agent(ScriptedModel([calls(clean={}), "done"]), tools=[disc.delete, clean])
    runner = Runner(agent, transcripts=None, callbacks=[Callbacks(before_tool=check)])
    await runner.run("go", session_id="s")
    assert disc.gone == []
    assert await results_in(runner) == ["not run: it was denied: not without asking"]


async def test_arguments_and_results_are_changed_in_order() -> None:
    disc, seen = Disc(), list[str]()

    class Elsewhere(Callbacks):
        async def before_tool(self, call: ToolCall) -> ToolCall:
            return replace(call, arguments=json.dumps({"path": "b"}))

        def after_tool(self, call: ToolCall, result: str) -> str:
            seen.append(result)
            return result.upper()

    looks = Callbacks(
        before_tool=lambda call: seen.append(call.arguments), after_tool=lambda _, text: f"({text})"
    )
    runner = runner_with(disc, Elsewhere(), looks)
    await runner.run("go", session_id="s")
    assert disc.gone == ["b"]
    assert seen == ['{"path": "b"}', "b is gone, key hush-hush"]
    assert await results_in(runner) == ["(B IS GONE, KEY HUSH-HUSH)"]


@pytest.mark.parametrize(
    "check",
    [
        lambda call: replace(call, name="other"),
        lambda call: 1 / 0,
        lambda call: True,
        lambda call: asyncio.sleep(9),
    ],
)
async def test_where_a_check_fails_the_call_is_not_run(check: Any) -> None:
    disc = Disc()
    runner = runner_with(disc, Callbacks(before_tool=check), callback_seconds=0.2)
    result = await runner.run("go", session_id="s")
    assert (result.status, disc.gone) == ("answered", [])
    assert [failure.point for failure in result.callback_failures] == ["before_tool"]


async def test_a_prompt_is_refused_without_asking_the_model() -> None:
    def refuse(request: ModelRequest) -> Answer | None:
        asks = "password" in str(request.messages[-1]["content"])
        return Answer(message=Message.assistant("I say no passwords.")) if asks else None

    runner = runner_with(Disc(), Callbacks(before_model=refuse), answers=["Hello."])
    assert (await runner.run("The password?", session_id="s")).output == "I say no passwords."
    assert (await runner.run("Hello?", session_id="s")).output == "Hello."
    model: Any = runner.agent.model
    assert len(model.requests) == 1


async def test_a_request_is_sent_otherwise_and_an_answer_stored_otherwise() -> None:
    def more(request: ModelRequest) -> ModelRequest:
        return replace(request, messages=(*request.messages, {"role": "user", "content": "Briefly."}))

    def shorter(answer: Answer) -> Answer:
        return replace(answer, message=Message.assistant(answer.message.text[:4]))

    runner = runner_with(
        Disc(), Callbacks(before_model=more, after_model=shorter), answers=["A long answer."]
    )
    result = await runner.run("go", session_id="s")
    model: Any = runner.agent.model
    assert model.requests[0].messages[-1]["content"] == "Briefly."
    assert result.output == "A lo"
    assert "Briefly." not in str(await runner.events("s"))


async def test_a_models_own_kind_of_answer_is_answered_with_a_plain_one() -> None:
    class Measured(Answer):
        """What a gateway adds to an answer."""

    class Gateway(ScriptedModel):
        async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
            async for part in super().stream(request):
                yield Measured(message=part.message) if isinstance(part, Answer) else part

    hooks = Callbacks(after_model=lambda answer: Answer(message=Message.assistant("Better.")))
    runner = Runner(Agent(Gateway(["Good."])), transcripts=None, callbacks=[hooks])
    assert (await runner.run("go")).output == "Better."


async def test_hooks_see_no_secrets() -> None:
    seen: list[str] = []
    hooks = Callbacks(
        after_tool=lambda call, result: seen.append(result),
        after_model=lambda answer: seen.append(answer.message.text),
    )
    answers = [DELETE, "the key is hush-hush"]
    runner = runner_with(Disc(), hooks, answers=answers, redact=Secrets(["hush-hush"]))
    await runner.run("go", session_id="s")
    assert "hush-hush" not in str(seen)
    assert any("is gone" in text for text in seen)


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ({"before_tools": print}, "before_tools"),
        ({"before_tool": 5}, "before_tool=5"),
        ({"after_tool": lambda call: None}, "two arguments"),
    ],
)
def test_functions_by_other_names_and_of_other_forms_are_refused(functions: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        runner_with(Disc(), Callbacks(**functions))


async def test_a_denied_call_does_not_run_in_the_background_either() -> None:
    disc, begun = Disc(), calls(run_in_background={"tool": "delete", "arguments": {"path": "a"}})
    model = ScriptedModel([begun, calls(check={"wait_seconds": 1}), "done"])
    agent = Agent(model, tools=[disc.delete, Background(agent_tools=["delete"])])
    check = Callbacks(before_tool=lambda call: Deny("no") if call.name == "delete" else None)
    await Runner(agent, transcripts=None, callbacks=[check]).run("go", session_id="s")
    assert disc.gone == []


async def test_the_result_of_a_call_in_the_background_is_shown_to_hooks_too() -> None:
    disc, seen = Disc(), list[str]()
    begun = calls(run_in_background={"tool": "delete", "arguments": {"path": "a"}})
    model = ScriptedModel([begun, calls(check={"wait_seconds": 1}), "done"])
    agent = Agent(model, tools=[disc.delete, Background(agent_tools=["delete"])])
    hears = Callbacks(after_tool=lambda call, text: seen.append(f"{call.name}: {text}"))
    await Runner(agent, transcripts=None, callbacks=[hears]).run("go", session_id="s")
    assert "delete: a is gone, key hush-hush" in seen


@pytest.mark.parametrize("message", [Message(role="user", content="x"), Message.tool("x", "y")])
async def test_an_answer_that_is_no_assistants_is_passed_over(message: Message) -> None:
    def other(answer: Answer) -> Answer:
        return replace(answer, message=message)

    with pytest.warns(RuntimeWarning, match="returned an answer of the role"):
        result = await runner_with(Disc(), Callbacks(after_model=other), answers=["done"]).run("go")
    assert result.output == "done"


async def test_arguments_that_are_no_text_are_a_call_that_is_not_run() -> None:
    disc, unheard = Disc(), Callbacks(before_tool=lambda call: replace(call, arguments={"path": "b"}))
    with pytest.warns(RuntimeWarning, match="no text of JSON"):
        await runner_with(disc, unheard).run("go")
    assert disc.gone == []


async def test_what_a_hook_changes_in_place_stays_with_it() -> None:
    def spoil(request: ModelRequest) -> None:
        request.messages[-1]["content"] = "spoilt"
        request.tools[0]["function"]["name"] = "spoilt"

    model = ScriptedModel([DELETE, "done"])
    runner = Runner(
        Agent(model, tools=[Disc().delete]), transcripts=None, callbacks=[Callbacks(before_model=spoil)]
    )
    await runner.run("go")
    assert "spoilt" not in str(model.requests)


async def test_around_stands_around_each_work_in_its_own_task() -> None:
    told, place = list[str](), contextvars.ContextVar("place", default="nowhere")

    def around(work: Work) -> Any:
        told.append(f"{work.kind} {work.name} in {place.get()}")
        token = place.set(work.kind)

        def end(outcome: WorkOutcome) -> None:
            place.reset(token)
            told.append(f"{work.kind} {type(outcome.value).__name__}")

        return end

    await runner_with(Disc(), Callbacks(around=around)).run("go", session_id="s")
    model, tool = "model scripted in run", "tool delete in run"
    assert told == [
        *("run scripted in nowhere", model, "model Answer", tool, "tool ToolAnswer"),
        *(model, "model Answer", "run RunEnded"),
    ]


@pytest.mark.filterwarnings("ignore:the callback Callbacks failed in around")
@pytest.mark.parametrize("reply", [5, lambda outcome: 1 / 0, None])
async def test_an_around_that_fails_is_reported_and_changes_nothing(reply: Any) -> None:
    def around(work: Work) -> Any:
        return reply or 1 / 0

    result = await runner_with(Disc(), Callbacks(around=around)).run("go", session_id="s")
    assert result.status == "answered"
    assert {failed.point for failed in result.callback_failures} == {"around"}


async def test_an_around_that_is_a_coroutine_is_refused() -> None:
    class Later(Callbacks):
        async def around(self, work: Work) -> None:  # type: ignore[override]
            """Comes too late."""

    with pytest.raises(UsageError, match=r"Later\.around must be a plain function"):
        runner_with(Disc(), Later())
