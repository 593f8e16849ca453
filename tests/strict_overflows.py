"""How servers say that a prompt is longer than their window, in many dialects."""

from collections.abc import Callable
from typing import TypeAlias

from tests.strict_replies import Answered, Fault, events, fault

Overflowing: TypeAlias = Callable[[int, int, int], Answered]
"""The refusal for a window, the prompt's tokens and the answer's."""


OVERFLOWS: dict[str, Overflowing] = {
    "openai": lambda window, prompt, answer: fault(
        400,
        f"This model's maximum context length is {window} tokens. However, your messages came to "
        f"{prompt + answer} tokens: you requested {prompt + answer} tokens.",
        type="invalid_request_error",
        param="messages",
        code="context_length_exceeded",
    ),
    "openrouter": lambda window, prompt, answer: fault(
        400,
        f"This endpoint's maximum context length is {window} tokens. However, you requested about "
        f"{prompt + answer} tokens ({prompt} of text input, 0 of tool input, {answer} in the output).",
        code=400,
    ),
    "vllm": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "object": "error",
            "message": f"This model's maximum context length is {window} tokens. However, you requested "
            f"{prompt + answer} tokens ({prompt} in the messages, {answer} in the completion).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "llamacpp": lambda window, prompt, answer: fault(
        400,
        "the request does not fit the slot",
        code=400,
        type="exceed_context_size_error",
        n_prompt_tokens=prompt,
        n_ctx=window,
    ),
    "llamacpp-500": lambda window, prompt, answer: fault(
        500,
        "the request does not fit the slot",
        code=500,
        type="exceed_context_size_error",
        n_prompt_tokens=prompt,
        n_ctx=window,
    ),
    "llamacpp-bare": lambda window, prompt, answer: fault(
        500, "the request exceeds the available context size", code=500, type="server_error"
    ),
    "anthropic": lambda window, prompt, answer: fault(
        400, f"prompt is too long: {prompt + answer} tokens > {window} maximum", type="invalid_request_error"
    ),
    "anthropic-sum": lambda window, prompt, answer: fault(
        400, f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > {window}"
    ),
    "gemini": lambda window, prompt, answer: Fault(
        status=400,
        body=[
            {
                "error": {
                    "code": 400,
                    "message": f"The input token count ({prompt + answer}) exceeds the maximum number of "
                    f"tokens allowed ({window}).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "glm": lambda window, prompt, answer: fault(400, "Prompt exceeds max length", code="1261"),
    "http-413": lambda window, prompt, answer: Fault(
        status=413, body="<html>Request Entity Too Large</html>"
    ),
    "stream-error": lambda window, prompt, answer: events(
        {
            "error": {
                "message": f"request ({prompt + answer} tokens) exceeds the context size ({window} tokens)"
            }
        },
        done=False,
    ),
    "error-object": lambda window, prompt, answer: Fault(
        status=200,
        body={
            "error": {"message": "Your input exceeds the context window", "code": "context_length_exceeded"}
        },
    ),
    "bare-500": lambda window, prompt, answer: Fault(status=500, body="Internal Server Error"),
}
