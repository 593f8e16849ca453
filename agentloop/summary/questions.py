"""What a summary's request says: the conversation as material, then what is asked of it."""

from agentloop.pieces import BETWEEN
from agentloop.prompts import SUMMARY_FOCUS, SUMMARY_INSTRUCTION
from agentloop.strategies import Summary

WORDS_PER_TOKEN = 0.6
"""Below the 0.75 that OpenAI's documentation gives for English, so that the cap holds elsewhere too."""


def question_of(material: str, spec: Summary, *, focus: str | None, max_tokens: int, told: str = "") -> str:
    """The question; `told` says which part of the conversation the material is.

    Where an instruction of the user's own names `{max_words}`, that is filled in; other braces are text.
    """
    words = str(max(1, int(max_tokens * WORDS_PER_TOKEN)))
    instruction = (spec.instruction or SUMMARY_INSTRUCTION).replace("{max_words}", words)
    wish = SUMMARY_FOCUS.format(focus=focus) if focus else ""
    lines = (f"<conversation>\n{material}\n</conversation>", told, instruction, wish)
    return BETWEEN.join(line for line in lines if line)
