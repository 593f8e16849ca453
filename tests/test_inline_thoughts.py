"""A thought in tags that begins an answer's text, from servers without a parser for it, is no text of it."""

import pytest

from agentloop.messages import INLINE_REASONING
from agentloop.providers.openai.chat_parts import GrowingContent
from tests.counted_tool_kit import ran, runner_of
from tests.server_kit import answer_of, chat
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling

THOUGHTS = [
    ("<think>Well.</think>\n\nYes.", "Well.", "Yes."),
    ("\n <think>\na < b\n</think>Yes. <think>no</think>", "a < b", "Yes. <think>no</think>"),
    ("<think></think>Yes.", None, "Yes."),
    ("<think>Well. Yes.", None, "<think>Well. Yes."),
    ("<thin ice> Yes.", None, "<thin ice> Yes."),
    (" <th", None, " <th"),
    ("I say <think>this</think>.", None, "I say <think>this</think>."),
]


@pytest.mark.parametrize(("said", "thought", "text"), THOUGHTS)
@pytest.mark.parametrize("piece_chars", [1, 3, 100])
@pytest.mark.whole
async def test_a_thought_in_tags_is_no_text(
    said: str, thought: str | None, text: str, piece_chars: int, stream: bool
) -> None:
    with StrictProvider([Reply(text=said, piece_chars=piece_chars)]) as server:
        message = (await answer_of(chat(server, stream=stream))).message
    assert message.text == text
    assert message.extra.get(INLINE_REASONING) == thought


async def test_it_is_neither_shown_nor_sent_back(stream: bool) -> None:
    calls = (calling("look", path="one"),)
    replies = [Reply(text="<think>Look first.</think>", calls=calls), "<think>Hm.</think>\nDone."]
    with StrictProvider(replies) as server:
        result = await runner_of(server, stream=stream).run("go")
    assert ran == {"one": 1}
    assert result.output == "Done."
    assert server.refusals == []
    assert "Look first" not in str(server.bodies[1])


class Watched(str):
    """A piece that counts the characters which are copied where it is joined to those before it."""

    copied = 0

    def __radd__(self, before: str, /) -> "Watched":
        Watched.copied += len(before) + len(self)
        return Watched("".join((before, self)))


@pytest.mark.parametrize("begun", ["<think>", ""])
def test_l11_a_thought_in_many_pieces_is_copied_once(begun: str) -> None:
    Watched.copied = 0
    content, pieces = GrowingContent(), [begun, *[" \n"] * 2_000, "Yes."]
    assert [content.add(Watched(piece)) for piece in pieces[:-1]] == [""] * 2_001
    shown = content.add(Watched(pieces[-1])) + content.rest()
    assert shown == "".join(pieces)
    assert Watched.copied < 10 * len(shown)
