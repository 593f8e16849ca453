"""Plain talk: what it is, what was said, and what it still sees of what it was told."""

import re
from collections.abc import Iterator

from agentloop.offline.describe import shortened
from agentloop.offline.record import facts_of
from agentloop.offline.view import View

_QUESTION = re.compile(
    r"\b(?:what|who|where|when|which|how \w+)(?:'s|’s|\s+(?:is|was|are|were))\s+(?P<whose>my|our|the)"
    r"\s+(?P<thing>[^?.!\n]+?)\s*\?",
    re.IGNORECASE,
)
_RECALL = re.compile(r"\b(?:remember|know about me|told you|tell you|asked you)\b[^.!\n]*\?", re.IGNORECASE)
_COUNT = re.compile(r"\bhow many messages\b", re.IGNORECASE)


def chat(view: View) -> str:
    """A short honest answer from what stands in the messages."""
    asked = view.asked.strip()
    if question := _QUESTION.search(asked):
        return _told(question["whose"].lower(), question["thing"].strip(), view)
    if _RECALL.search(asked):
        facts = list(dict.fromkeys(fact for text in _texts(view) for fact in facts_of(f"User: {text}")))
        lines = "\n".join(f"- “{fact}”" for fact in facts)
        return f"This I still see:\n{lines}" if facts else "I see nothing that I was asked to remember."
    if _COUNT.search(asked):
        return f"I see {_count(view)}, this one included."
    if facts := facts_of(f"User: {asked}"):
        return f"Noted: “{' '.join(facts)}” I know it as long as it stands in the messages I am sent."
    return (
        f"You said: “{shortened(' '.join(asked.split()), 200)}” I see {_count(view)}. I am the "
        "offline stand-in and follow rules: I can read files of a kind and say what each does, call a tool "
        "that you name, and tell what stands in our messages. For more, name a model and set OPENAI_API_KEY."
    )


def _told(whose: str, thing: str, view: View) -> str:
    statement = re.compile(
        rf"(?:\b(?:my|our|the|your)|'s|’s)\s+{re.escape(thing)}\s*(?:\b(?:is|was|are|were)\b|[:=])\s*([^\n]+?)"
        r"(?=\s+and\s+(?:i|my|our|we)\b|[.!?,;”]*(?:\s|$)(?![a-z])|[.!?,;”]+(?:\s|$)|\n)",
        re.IGNORECASE,
    )
    shown = f"{'your' if whose == 'my' else whose} {thing}"
    for text in reversed(list(_texts(view))):
        if found := statement.findall(text):
            return f"{shown[0].upper()}{shown[1:]} is {found[-1]}."
    return f"I do not see {shown} in the messages I was sent."


def _texts(view: View) -> Iterator[str]:
    """What was said before the question, oldest first: the records, then the messages."""
    yield from view.records
    yield from (message.text for message in view.before)


def _count(view: View) -> str:
    number = len(view.before) + 1 + len(view.since) + len(view.records)
    return "1 message" if number == 1 else f"{number} messages"
