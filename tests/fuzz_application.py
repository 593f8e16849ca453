"""What applications want of fuzzed conversations beside texts: a yes to calls, images, answers of a type."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agentloop.approvals import ApprovalReply, Approve, Pending, Reject, Respond
from agentloop.media import Image
from agentloop.rules import Rules
from agentloop.run import Native
from agentloop.tools import RunContext, tool
from tests.fuzz_texts import text
from tests.fuzz_tools import FuzzedTools
from tests.media_kit import png
from tests.strict_bodies import Body
from tests.strict_replies import Call, Fault, Reply, fault

RULES = (
    None,
    None,
    Rules(deny=["side"], ask=["again"]),
    Rules(ask=["look"], allow=["shred"]),
    Rules(allow=["ma*"], deny=["note"]),
)
RULES_BELOW = (None, None, Rules(ask=["_dig"]), Rules(allow=["_bury"]), Rules(deny=["_bury"]))
NO_IMAGES = (
    (400, "Invalid content type. image_url is only supported by certain models."),
    (500, "image input is not supported - hint: you may need to provide the mmproj"),
    (422, "messages[0]: unknown variant `image_url`, expected `text`"),
    (404, "No endpoints found that support image input"),
)
PICTURES = (png(16, 16), png(640, 480), png(1280, 720, bytes_more=3_000))
"""The last one is kept beside the log."""


@dataclass(frozen=True)
class Found:
    """The type of the answers: `place` says which of them it is."""

    place: int
    words: list[str]


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What is wanted of one conversation.

    `asks` says whether calls of tools that need a yes are made, `below` whether sub-agents make them,
    `at_once` whether an approver is asked, which now and then says nothing. `refusal` is how the server
    refuses images, None for one that takes them. `fits` is how many of the answers are of the type.
    """

    asks: bool = False
    below: bool = False
    at_once: bool = False
    rules: Rules | None = None
    images: bool = False
    refusal: tuple[int, str] | None = None
    output: Any = None
    fits: float = 1.0

    @classmethod
    def of(cls, seed: int) -> "Wants":
        """Those of one seed in four; drawn apart, so that all else is drawn as without them.

        Another one in four has sub-agents, of which most ask for a yes.
        """
        draw = Random(f"{seed} application")
        if seed % 4 == 2 and draw.random() < 0.75:
            return cls(below=True, at_once=draw.random() < 0.3, rules=draw.choice(RULES_BELOW))
        if seed % 4 != 3:
            return cls()
        return cls(
            asks=draw.random() < 0.7,
            at_once=draw.random() < 0.5,
            rules=draw.choice(RULES),
            images=draw.random() < 0.5,
            refusal=draw.choice([None, None, draw.choice(NO_IMAGES)]),
            output=draw.choice([None, Found, Found, Native(Found)]),
            fits=draw.choice([1.0, 0.5, 0.5, 0.0]),
        )


@dataclass(kw_only=True)
class Application:
    """The tools, the person that is asked, and what the server's model calls and answers.

    `said` is what the person said of the call of each number, in order; `offered` the answers of the type
    that the model gave.
    """

    seed: int
    wants: Wants
    said: dict[int, list[ApprovalReply]] = field(default_factory=dict)
    offered: list[Found] = field(default_factory=list)
    _asked: int = 0

    def tools(self, fuzzed: FuzzedTools) -> list[Any]:
        """Tools that need a yes, always or by a function that may fail, and one that shows an image."""

        def check(context: RunContext[Any], arguments: Mapping[str, Any]) -> bool:
            return bool([True, False][arguments["number"] % 3])  # fails for every third

        async def shot(number: int, words: int = 10, script: str = "words", text: str = "") -> list[Any]:
            """Take a screenshot."""
            return [await fuzzed.did_later(number, words, script), self.picture(number)]

        shred = tool(needs_approval=True)(fuzzed.later("shred", "Shred."))
        maybe = tool(needs_approval=check)(fuzzed.later("maybe", "Shred some."))
        return [*([shred, maybe] if self.wants.asks else []), *([shot] if self.wants.images else [])]

    def names(self) -> list[str]:
        """The tools that the model calls beside the others."""
        return ["shred", "maybe"] * self.wants.asks + ["shot"] * self.wants.images

    def prompt(self, text: str, number: int) -> str | list[Any]:
        """The prompt as it is said, now and then with an image."""
        draw = Random(f"{self.seed} attached {number}")
        return [text, self.picture(number)] if self.wants.images and draw.random() < 0.4 else text

    def picture(self, number: int) -> Image:
        """One of the pictures."""
        return Image(data=PICTURES[number % len(PICTURES)], name=f"{number}.png" if number % 2 else None)

    def approver(self, pending: Pending) -> Any:
        """What is said at once: now and then nothing, or nothing that is an answer."""
        draw = self._drawn("approver")
        match draw.randrange(8):
            case 0:
                return None
            case 1:
                raise ValueError("away \ud800")
            case 2:
                return draw.choice(["yes", True])
        return self._reply(pending, draw)

    def answers(self, pending: Sequence[Pending]) -> dict[str, Any]:
        """What is said later, to most of what waits; now and then to what does not wait."""
        draw = self._drawn("answers")
        given: dict[str, Any] = {each.call_id: each for each in pending if draw.random() < 0.8}
        if draw.random() < 0.1:
            return {"nobody": Approve(), **{key: Approve() for key in given}}
        return {key: self._reply(each, draw) for key, each in given.items()}

    def _drawn(self, what: str) -> Random:
        self._asked += 1
        return Random(f"{self.seed} {what} {self._asked}")

    def _reply(self, pending: Pending, draw: Random) -> ApprovalReply:
        changed = {**pending.arguments, "words": draw.choice([1, 77])}
        replies = (Approve(), Approve(), Approve(changed), Reject(draw.choice(["no", ""])), Respond("said"))
        reply = draw.choice(replies)
        self.said.setdefault(pending.arguments["number"], []).append(reply)
        return reply

    def refused(self, body: Body) -> Fault | None:
        """What a server says that takes no images, where there is one."""
        return fault(*self.wants.refusal) if self.wants.refusal and has_images(body) else None

    def answer(self, reply: Reply, beside: Sequence[Call]) -> Reply:
        """What is of the type, or a reply that does not fit; `beside` are calls that may come too."""
        draw = self._drawn("answer")
        found = Found(self._asked, text("words", draw.choice([1, 20, 200])).split())
        fits = draw.random() < self.wants.fits
        value = json.dumps(vars(found) if fits else draw.choice([{}, {"place": "x", "words": []}, [1]]))
        if fits:
            self.offered.append(found)
        if isinstance(self.wants.output, Native) or draw.random() < 0.2:
            return Reply(text=value if fits else draw.choice([value, reply.text]), piece_chars=16)
        call = Call(name="final_answer", arguments=value, id=f"answer_{self._asked:06d}")
        twice = Call(name="final_answer", arguments=value, id=f"answer_{self._asked:06d}_")
        calls = draw.choice([(call,), (call,), (call, twice), (*beside, call)])
        return Reply(text=draw.choice(["", "Here it is."]), calls=calls)


def has_images(body: Body) -> bool:
    """Whether a request, in the form of chat completions, holds an image."""
    lists = (message["content"] for message in body["messages"] if isinstance(message["content"], list))
    return any("image_url" in part for parts in lists for part in parts)
