"""Refusals and faults that speak of what is too long, too large or limited, and are not about the context."""

from typing import NamedTuple


class Other(NamedTuple):
    """What a server says, and the status that it says it with."""

    text: str
    status: int = 400


_TIME = (
    Other("The request took too long to process. Please try again.", 500),
    Other("Request timed out: the prompt took too long to evaluate", 500),
    Other("the request has been running too long and was stopped", 500),
    Other("Your request waited in the queue for too long", 500),
    Other("waiting for tokens exceeded the deadline", 500),
    Other("Prompt processing exceeded the time limit", 500),
    Other("Loading the model's context took too long", 500),
    Other("The conversation has been idle too long and was closed"),
    Other("The context was inactive for too long, start a new one"),
    Other("the messages are taking too long to arrive", 500),
    Other("context cache not found or expired: too long idle"),
    Other("tokens must be at most 3 days old"),
)
_LOAD = (
    Other("Too many concurrent requests: session limit reached"),
    Other("Too many requests: input queue limit"),
    Other("queue overflow: session limit reached", 500),
    Other("queue overflow; model limit reached", 500),
    Other("KV cache: number of tokens in flight too large, retry later", 500),
    Other("Overflow error in sampler: input size mismatch", 500),
    Other("CUDA error: integer overflow in input size", 500),
    Other("Too many open contexts on this device", 500),
    Other("Request too large to fit in the memory of this model", 500),
    Other("conversation context limit of concurrent users exceeded", 500),
    Other("Too many tokens, please wait before trying again.", 500),
    Other("Too many tokens. Please wait before trying again.", 500),
    Other("The batch is too large: 128 sequences", 500),
    Other("Maximum number of parallel conversations exceeded"),
    Other("model limit reached: 5 of 5 models are loaded", 500),
    Other("memory limit exceeded", 500),
    Other("stack overflow while the model was loaded", 500),
)
_ALLOWANCE = (
    Other("You have exceeded the token limit for today", 500),
    Other("exceeded token limit of your organization", 500),
    Other("exceeded the max tokens budget for this month: 1000000 tokens"),
    Other("Request was rejected: tokens used this month exceed your plan"),
    Other("Your tokens exceed the monthly plan"),
    Other("Your input tokens exceed the daily allowance of 200000 tokens"),
    Other("Exceeded model limit for your tier"),
    Other("You exceeded your daily input limit"),
    Other("tokens used today 9000/8000"),
    Other("You used 9000/8000 tokens."),
    Other("Your plan's context limit was reached today"),
    Other("You have exceeded the maximum number of models; model limit is 5"),
    Other("reached maximum tokens per day"),
    Other("You exceeded max_tokens of your plan"),
    Other("Exceeded the session limit for this API key"),
    Other("Your session tokens exceed their lifetime"),
    Other("API tokens exceed allowed number"),
    Other("prompt tokens exceed the balance of your credits: 9000 > 4000"),
    Other("今日tokens数量超过限制"),
    Other("请求频率超过限制"),
)
_FIELDS = (
    Other(
        "<html><head><title>400 Request Header Or Cookie Too Large</title></head><body>nginx</body></html>"
    ),
    Other("Request header too large"),
    Other("request too large: the field 'user' has 300 characters"),
    Other("Request-URI Too Large"),
    Other("Invalid request: 'user' is too long (maximum 64 characters)"),
    Other("'user' is too long: 300 > 256"),
    Other("Invalid request: stop sequence too long"),
    Other("Invalid request: metadata value too long"),
    Other("request contains a name that is too long"),
    Other("Invalid request: temperature too large, must be <= 2"),
    Other("Invalid messages: the text of a refusal is too long, must be at most 40 characters"),
    Other("messages[2]: function name too long (max 64)"),
    Other("Invalid request: n too large, at most 8"),
    Other("JSON input nested too large"),
    Other("Invalid request: top_logprobs too large"),
    Other("message timestamp too large"),
    Other("prompt_cache_key too long"),
    Other("the label of the prompt template is too long"),
    Other("the access token is too long"),
    Other("input tensor has too many dimensions"),
    Other("seed is larger than the limit of a 64 bit number"),
)
_ANSWER = (
    Other("max_tokens=16384 cannot be greater than max_model_len"),
    Other("max_tokens must be at most the model limit: tokens requested exceed it"),
    Other("thinking.budget_tokens too large"),
    Other("budget_tokens must be less than max_tokens: budget tokens exceed"),
    Other("reasoning tokens exceed budget"),
    Other("the requested output tokens exceed what this model can say"),
    Other("completion tokens exceed the limit"),
    Other("max_tokens (9000) is more than the 4096 tokens the model gives"),
)
NO_OVERFLOWS = (*_TIME, *_LOAD, *_ALLOWANCE, *_FIELDS, *_ANSWER)
