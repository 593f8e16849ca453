"""Images and files, from a prompt or a tool to the provider, the log, and out of it again."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agentloop import (
    Agent,
    Compaction,
    File,
    Image,
    MicroCompact,
    ModelError,
    OfflineModel,
    OpenAIChat,
    OpenAIResponses,
    Runner,
    Secrets,
    UsageError,
    tool,
)
from agentloop.cli.input import dropped_files
from agentloop.events import MessageRecord
from agentloop.media import image_tokens, size_of, type_of
from agentloop.messages import Message
from agentloop.sessions import load
from agentloop.stores import InMemoryStore, SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop, environment
from tests.media_kit import PDF, gif, jpeg, png, webp
from tests.server_kit import chat
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling, fault

SHOT = png(1280, 720, bytes_more=3_000)
ICON = png(16, 16)


@tool
def screenshot() -> list[Any]:
    """Take a screenshot."""
    return ["The screen:", Image(data=SHOT, name="screen.png")]


@tool
def look() -> str:
    """Look."""
    return "Seen."


def media_of(messages: Any) -> list[str]:
    """The URLs of all images and files in these messages."""
    parts = [part for each in messages if isinstance(each["content"], list) for part in each["content"]]
    media = [part for part in parts if part["type"] != "text"]
    return [part.get("image_url", {}).get("url") or part["file"]["file_data"] for part in media]


def texts_of(messages: Any) -> str:
    return "\n".join(Message.from_openai(each).text for each in messages)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(1280, 720), "image/png"),
        (jpeg(1280, 720), "image/jpeg"),
        (gif(1280, 720), "image/gif"),
        *((webp(1280, 720, form), "image/webp") for form in ("VP8X", "VP8L", "VP8 ")),
    ],
)
def test_type_and_size_come_from_the_bytes(data: bytes, kind: str) -> None:
    assert (type_of(data), size_of(data)) == (kind, (1280, 720))
    for length in range(len(data) if len(data) < 100 else 40):
        assert size_of(data[:length]) in (None, (1280, 720))
    assert Message(role="user", content=Image(data=data).parts).text == "[image 1280×720]"


def test_images_count_as_openai_says() -> None:
    assert image_tokens("gpt-4o", (1024, 1024)) == 765
    assert image_tokens("gpt-4.1", (4096, 8192), low=True) == 85
    assert image_tokens("openai/gpt-5-mini", (1024, 1024)) == 1659
    assert image_tokens("gpt-4.1-mini", (1800, 2400)) == 2353, "1,452 patches"
    assert image_tokens("o3", (512, 512)) == 225


async def test_an_image_goes_whole_to_the_provider_and_into_the_log_as_a_reference(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(SHOT)
    store = SQLiteStore(tmp_path / "s.db")
    with StrictProvider(["A screen.", "Still one."]) as server:
        model = OpenAIChat("strict", base_url=server.url, api_key="k")
        async with Runner(Agent(model), store=store, transcripts=None, redact=Secrets()) as runner:
            prompt = ["What is this?", Image(path=tmp_path / "shot.png"), File(data=b"a: 1", name="a.yml")]
            result = await runner.run(prompt, session_id="s")
            await runner.run(["The same?", Image(data=SHOT)], session_id="s")
            records = await runner.events("s")
            assert await runner.branches("s") == []
        assert server.refusals == []
    assert result.output == "A screen."
    sent = media_of(server.bodies[-1]["messages"])
    assert sent == [Image(data=SHOT).parts[0]["image_url"]["url"]] * 2
    assert "[file a.yml]\na: 1" in texts_of(server.bodies[-1]["messages"])
    said = [each.event.message for each in records if isinstance(each.event, MessageRecord)]
    assert "[image shot.png 1280×720]" in said[0].text
    assert max(len(json.dumps(each.to_openai())) for each in said) < 500
    assert len(await store.list(branches_of="s")) == 0
    assert await store.delete("s")
    assert await store.info("s~.media." + said[0].content[1]["image_url"]["url"][-64:]) is None  # type: ignore[index]
    await store.close()


async def test_an_image_in_a_result_follows_the_results_and_on_responses_stands_in_the_output() -> None:
    brain = [Reply(calls=(calling("screenshot"), calling("look"))), "Done.", "And on."]
    url = Image(data=SHOT).parts[0]["image_url"]["url"]
    with StrictProvider(list(brain), modes=["V8"]) as server:
        model = OpenAIChat("strict", base_url=server.url, api_key="k")
        runner = Runner(Agent(model, tools=[screenshot, look]), transcripts=None)
        await runner.run("Look.", session_id="s")
        await runner.run("On.", session_id="s")
        assert server.refusals == []
        bodies = server.bodies
    roles = [each["role"] for each in bodies[1]["messages"]]
    assert roles[-5:] == ["assistant", "tool", "tool", "assistant", "user"]
    assert bodies[1]["messages"][-3]["content"] == "Seen."
    assert bodies[1]["messages"][-1]["content"][-1]["image_url"]["url"] == url
    assert bodies[2]["messages"][: len(bodies[1]["messages"])] == bodies[1]["messages"]
    with StrictProvider(list(brain)) as server:
        responses = OpenAIResponses("strict", base_url=server.url, api_key="k")
        await Runner(Agent(responses, tools=[screenshot, look]), transcripts=None).run("Look.")
        assert server.refusals == []
        outputs = [item["output"] for item in server.bodies[1]["input"] if "output" in item]
    assert outputs[0][-1] == {"type": "input_image", "image_url": url, "detail": "auto"}


async def test_old_images_are_shown_shortened_and_come_back_by_their_position() -> None:
    replies = [
        calls(screenshot={}),
        *(calls(look={}) for _ in range(3)),
        calls(recall={"query": "position 6"}),
        "Done.",
    ]
    model = ScriptedModel(replies, window=50_000, name="gpt-4o")
    policy = Compaction(micro=MicroCompact(keep_messages=4, min_gain_tokens=0))
    agent = Agent(model, tools=[screenshot, look], recall=True, compaction=policy)
    runner = Runner(agent, transcripts=None)
    await runner.run(["This is the plan.", Image(data=SHOT, name="plan.png")], session_id="s")
    shown = [texts_of(request.messages) for request in model.requests]
    assert "[image 1280×720]" in shown[1]
    assert "[image screen.png 1280×720 shown at position 6; recall by position]" in shown[-2]
    assert "This is the plan.\n[image 1280×720]" in shown[-1], "the task stays"
    assert len(media_of(model.requests[-2].messages)) == 1
    assert len(media_of(model.requests[-1].messages)) == 2, "recalled"


async def test_sessions_with_images_compact_undo_rewind_and_keep_them_in_transcripts(tmp_path: Path) -> None:
    store = InMemoryStore()
    model = ScriptedModel(["one", "two", "three", "four"], window=60_000, name="gpt-4o")
    policy = Compaction(strategy=KeepRecentTurns(1), micro=None)
    runner = Runner(Agent(model, compaction=policy), store=store, transcripts=tmp_path / "t")
    for text in ("First", "Second", "Third"):
        await runner.run(
            [text, Image(data=SHOT, name=f"{text}.png"), File(data=PDF, name="a.pdf")], session_id="s"
        )
    before = (await runner.status("s")).tokens
    result = await runner.compact("s")
    assert result.status == "done"
    assert result.transcript is not None
    (first, *_) = load(tmp_path / "t" / result.transcript).messages
    assert media_of([first.to_openai()])[0].startswith("data:image/png;name=First.png;base64,iVBOR")
    assert (await runner.status("s")).tokens < before
    await runner.undo("s")
    assert (await runner.status("s")).tokens == before
    assert await runner.rewind("s") == 1
    await runner.run("On.", session_id="s")
    assert len(media_of(model.requests[-1].messages)) == 4


async def test_two_hundred_screenshots_open_without_being_read(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    shots = [png(1280, 720, bytes_more=20_000 + number) for number in range(200)]
    model = ScriptedModel(["ok"] * 2, window=400_000, name="gpt-4o")
    runner = Runner(Agent(model, compaction=None), store=store, transcripts=None)
    await runner.run(["All:", *(Image(data=shot) for shot in shots)], session_id="s")
    checkpoint = await store.checkpoint("s")
    kept = sum(len(str(record.event)) for record in await store.read("s"))
    assert kept + len(checkpoint.body if checkpoint else "") < 200_000
    assert len(set(media_of(model.requests[0].messages))) == 200
    await store.close()


async def test_a_prompt_that_has_no_room_is_refused_and_nothing_is_kept() -> None:
    model = ScriptedModel(["ok"], window=2_000, name="gpt-4o")
    runner = Runner(Agent(model), transcripts=None)
    with pytest.raises(Exception, match="window"):
        await runner.run(
            [Image(data=png(1500, 1500 + at, bytes_more=3_000)) for at in range(9)], session_id="s"
        )
    assert not runner.store._logs  # type: ignore[attr-defined]


def test_an_export_is_whole_and_an_import_keeps_it_anew(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(SHOT)
    env = environment(tmp_path)
    with StrictProvider(["A screen.", "Yes."]) as server:
        env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k", "AGENTLOOP_MODEL": "strict"}
        call = ("-p", "What?", "--attach", "shot.png", "--attach", "shot.png", "--session", "s")
        assert agentloop(*call, cwd=tmp_path, env=env).out == "A screen.\n"
        assert len(media_of(server.bodies[0]["messages"])) == 2
        for shape in ("events", "openai"):
            (tmp_path / shape).write_text(
                agentloop("sessions", "export", "s", "--format", shape, cwd=tmp_path, env=env).out
            )
            agentloop("sessions", "import", shape, "--session", shape, cwd=tmp_path, env=env)
            again = agentloop("sessions", "export", shape, "--format", "openai", cwd=tmp_path, env=env).out
            assert media_of(json.loads(again)) == media_of(server.bodies[0]["messages"])
        assert agentloop("sessions", "delete", "s", "--yes", cwd=tmp_path, env=env).status == 0
        assert agentloop("-p", "Sure?", "--session", "events", cwd=tmp_path, env=env).out == "Yes.\n"
        assert len(media_of(server.bodies[1]["messages"])) == 2
        assert server.refusals == []
    listed = agentloop("sessions", "list", "--json", cwd=tmp_path, env=env).out
    assert (
        "What? [image shot.png 1280×720]" in listed.encode().decode("unicode_escape") or "shot.png" in listed
    )
    missing = agentloop("-p", "What?", "--attach", "none.png", cwd=tmp_path, env=env)
    there = tmp_path / "none.png"
    assert (missing.status, missing.err) == (2, f"agentloop: there is no file '{there}': check the path\n")


def test_what_is_refused_at_once_names_no_session(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(SHOT)
    refused = agentloop("-m", "offline", "-p", "What?", "--attach", "shot.png", cwd=tmp_path)
    line = "agentloop: the model offline takes no images and no files but texts: use another model\n"
    assert (refused.status, refused.err) == (2, line)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Image(), "one of path=, data= and url="),
        (lambda: Image(data=b"GIF89a", url="https://x.y/z"), "one of path=, data= and url="),
        (lambda: Image(data=b"nothing"), "is no PNG, JPEG, GIF or WebP image"),
        (lambda: Image(data=PDF), "is no PNG"),
        (lambda: Image(data=b""), "is empty"),
        (lambda: Image(data=SHOT + b"\0" * 20_000_000, name="big.png"), "'big.png' is larger than 20 MB"),
        (lambda: Image(path="/no/such/file.png"), "there is no file"),
        (lambda: Image(path="/"), "'/' cannot be read: Is a directory"),
        (lambda: Image(url="file:///etc/passwd"), "an https:// address"),
        (lambda: Image(url="data:text/plain;base64,AAAA"), "an https:// address"),
        (lambda: Image(data=SHOT, detail="huge"), "auto, low or high"),  # type: ignore[arg-type]
        (lambda: Image(data="text"), "data as bytes"),  # type: ignore[arg-type]
        (lambda: File(url="https://x.y/z.pdf"), "takes no url"),
        (lambda: File(data=b"\0\1\2"), "no PDF, no image, and no text"),
        (lambda: File(data=b"x" * 1_000_001), "larger than 1 MB"),
    ],
)
def test_what_cannot_be_taken_is_one_clear_line(make: Any, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        make()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (400, "facebook/opt-125m is not a multimodal model None"),
        (400, "At most 0 image(s) may be provided in one request."),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (500, 'Failed to parse messages: Unsupported content part type: "image_url"'),
        (422, "messages[0]: unknown variant `image_url`, expected `text`"),
        (404, "No endpoints found that support image input"),
        (400, "messages[0].content must be a string"),
    ],
)
async def test_what_a_server_takes_no_images_is_learnt_and_then_refused_before_it_is_stored(
    status: int, words: str
) -> None:
    with StrictProvider([fault(status, words), "Words then.", "And more."]) as server:
        runner = Runner(Agent(chat(server)), transcripts=None)
        assert (
            await runner.run(["What?", Image(data=SHOT, name="a.png")], session_id="s")
        ).output == "Words then."
        named = "[image 1280×720, which this model does not take]"
        assert server.bodies[-1]["messages"][0]["content"][1] == {"type": "text", "text": named}
        before = await runner.events("s")
        with pytest.raises(UsageError, match="takes no images and no files"):
            await runner.run([Image(data=SHOT)], session_id="s")
        said = [
            each
            for each in (await runner.events("s"))[len(before) :]
            if isinstance(each.event, MessageRecord)
        ]
        assert said == []
        assert (await runner.run("Well.", session_id="s")).output == "And more."


async def test_one_image_that_is_refused_is_no_lesson_and_rewind_takes_it_back() -> None:
    refusal = fault(400, "The image size is too large: 6 MB is over the maximum of 5 MB")
    with StrictProvider([refusal, "Fine."]) as server:
        runner = Runner(Agent(chat(server)), transcripts=None)
        with pytest.raises(ModelError):
            await runner.run(["What?", Image(data=SHOT)], session_id="s")
        await runner.rewind("s")
        assert (await runner.run(["This?", Image(data=ICON)], session_id="s")).output == "Fine."
        assert len(media_of(server.bodies[-1]["messages"])) == 1


async def test_the_offline_model_takes_none() -> None:
    runner = Runner(Agent(OfflineModel()), transcripts=None)
    with pytest.raises(UsageError, match="offline takes no images"):
        await runner.run(["What?", Image(data=ICON)])


def test_paths_dropped_on_a_terminal_are_attached(tmp_path: Path) -> None:
    (tmp_path / "a shot.png").write_bytes(SHOT)
    (tmp_path / "b.pdf").write_bytes(PDF)
    spaced, plain = str(tmp_path / "a shot.png"), str(tmp_path / "b.pdf")
    for text in (
        f"'{spaced}'",
        f"What is '{spaced}'?",
        spaced.replace(" ", r"\ "),
        f'look at "{spaced}"',
        f"file://{spaced!r}",
    ):
        assert [file.name for file in dropped_files(text)] == ["a shot.png"], text
    assert [file.name for file in dropped_files(f"what's in {plain}, and {plain}?")] == ["b.pdf"]
    assert dropped_files("see /etc/hosts and /no/such.png and ~no-such-user/a.png and b.pdf") == ()


@pytest.mark.parametrize("bytes_more", [0, 3_000])
async def test_redaction_leaves_the_bytes_of_images_alone(bytes_more: int) -> None:
    begin = png(16, 16, bytes_more=bytes_more)
    data = begin + b"\0" * (-len(begin) % 3) + base64.b64decode("AKIAABCDEFGHIJKLMNOP")
    url = Image(data=data).parts[0]["image_url"]["url"]
    assert url.endswith("AKIAABCDEFGHIJKLMNOP")
    assert Secrets()("the key is AKIAABCDEFGHIJKLMNOP") != "the key is AKIAABCDEFGHIJKLMNOP"
    model = ScriptedModel(["ok"], name="gpt-4o")
    runner = Runner(Agent(model), transcripts=None, redact=Secrets())
    await runner.run(["AKIAABCDEFGHIJKLMNOP", Image(data=data)])
    assert media_of(model.requests[0].messages) == [url]
    assert "AKIAABCDEFGHIJKLMNOP" not in texts_of(model.requests[0].messages)


@pytest.mark.parametrize("bytes_more", [0, 3_000])
async def test_a_secret_in_the_name_of_an_image_is_taken_out_of_all_that_is_kept(bytes_more: int) -> None:
    image = Image(data=png(16, 16, bytes_more=bytes_more), name="shot of AKIAABCDEFGHIJKLMNOP.png")
    store = InMemoryStore()
    async with Runner(
        Agent(ScriptedModel(["ok"])), store=store, transcripts=None, redact=Secrets()
    ) as runner:
        await runner.run(["Look.", image], session_id="s")
        exported = str(await runner.sessions.export("s"))
    (message,) = [
        record.event.message
        for record in await store.read("s")
        if isinstance(record.event, MessageRecord) and record.event.message.has_media
    ]
    assert "shot of [redacted: AWS key id].png" in message.text
    assert "AKIA" not in f"{message!r} {exported}"
