"""What a model is, one call of it, what is tried again, and calls that a model writes as text."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.models.model import CUT_SHORT, Answer, AsksWindow, ChatModel, ModelPart, ModelRequest
from agentloop.models.model import OutputPart, PassingPart, Price, Priced, Purpose, Retry, TellsMedia
from agentloop.models.model import TellsSetup, TextPart, check_model, is_anyones, known_window, price

if TYPE_CHECKING:
    from agentloop.models.call import OnPart, Used, call_model, used_by
    from agentloop.models.retry import RetryPolicy, come_back
    from agentloop.models.text_calls import TextCalls, faults_in, faulty_as_text, is_call, with_calls
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "call": "OnPart Used call_model used_by",
            "retry": "RetryPolicy come_back",
            "text_calls": "TextCalls faults_in faulty_as_text is_call with_calls",
        },
        public="Answer AsksWindow CUT_SHORT ChatModel ModelPart ModelRequest OutputPart Price Priced Purpose "
        "Retry TellsMedia TellsSetup TextPart check_model",
    )
