"""Refusals in the words of many servers, shortened: requests that are too long, and what sounds like it."""

from typing import Any, NamedTuple

MOST = "maximum context length"


class TooLong(NamedTuple):
    """An error, and what it names: the window, the request, and of it the longest answer, in tokens."""

    body: object
    window: int | None = None
    tokens: int | None = None
    output_tokens: int | None = None
    status: int = 400


def error(message: str, **fields: Any) -> dict[str, Any]:
    """An error object."""
    return {"message": message} | fields


def _inputs(text: str) -> dict[str, Any]:
    return {"error": f"Input validation error: {text}", "error_type": "validation"}


TOO_LONG: dict[str, TooLong] = {
    "openai": TooLong(
        error(
            f"This model's {MOST} is 8192 tokens. Your messages resulted in 9000.",
            code="context_length_exceeded",
        ),
        8192,
        9000,
    ),
    "openai, prompt and completion": TooLong(
        error(
            f"{MOST} is 4097 tokens, requested 5120 tokens (1024 in your prompt; 4096 for the completion)."
        ),
        4097,
        5120,
        4096,
    ),
    "openai, functions": TooLong(
        error(
            f"{MOST} is 4097 tokens. However, you requested 5224 tokens "
            "(1000 in the messages, 128 in the functions, and 4096 in the completion)."
        ),
        4097,
        5224,
        4096,
    ),
    "azure": TooLong(
        error("Input tokens exceed the configured limit of 272000 tokens: they resulted in 300123 tokens."),
        272000,
        300123,
    ),
    "responses": TooLong(error("Your input exceeds the context window of this model.", param="input")),
    "openrouter": TooLong(
        error(
            f"This endpoint's {MOST} is 131072 tokens. However, you requested about 140000 tokens "
            "(70000 of text input, 6000 of tool input, 64000 in the output).",
            code=400,
        ),
        131072,
        140000,
        64000,
    ),
    "openrouter, quoting": TooLong(
        error(
            "the provider refused",
            code=400,
            metadata={"raw": '{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'},
        ),
        200000,
        210000,
    ),
    "vllm": TooLong(
        error(
            f"This model's {MOST} is 2048 tokens. However, you requested 2500 tokens "
            "(2000 in the messages, 500 in the completion).",
            object="error",
            type="BadRequestError",
            code=400,
        ),
        2048,
        2500,
        500,
    ),
    "vllm, remainder": TooLong(
        error(
            f"'max_tokens' is too large: 1000. {MOST} is 2048 tokens and your request has 1500 input tokens "
            "(1000 > 2048 - 1500)."
        ),
        2048,
        2500,
        1000,
    ),
    "vllm, at least": TooLong(
        error(
            f"{MOST} is 4096 tokens. You requested 100 output tokens and your prompt contains at least "
            "3997 input tokens, for a total of at least 4097 tokens."
        ),
        4096,
        4097,
        100,
    ),
    "vllm, the room left": TooLong(
        error(
            "You passed 3001 input tokens and requested 2000 output tokens. However, the model's context "
            "length is only 4096 tokens, resulting in a maximum input length of 2096 tokens.",
            param="input_tokens",
        ),
        4096,
        5001,
        2000,
    ),
    "vllm, characters": TooLong(
        error(
            "You passed 40000 input characters and requested 2000 output tokens. However, the model's "
            "context length is only 4096 tokens, resulting in a maximum input length of 2096 tokens."
        ),
        4096,
        None,
        2000,
    ),
    "vllm, decoder": TooLong(
        error("The decoder prompt (length 5000) is longer than the maximum model length of 2048."), 2048, 5000
    ),
    "sglang": TooLong(
        error(
            f"Requested token count exceeds the model's {MOST} of 8192 tokens: a total of 9000 tokens, "
            "5000 tokens from the input messages and 4000 tokens for the completion."
        ),
        8192,
        9000,
        4000,
    ),
    "sglang, input": TooLong(
        error("The input (5000 tokens) is longer than the model's context length (4096 tokens)."), 4096, 5000
    ),
    "tgi": TooLong(
        _inputs(
            "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 3000 `inputs` tokens "
            "and 1500 `max_new_tokens`"
        ),
        4097,
        4500,
        1500,
        status=422,
    ),
    "tgi, inputs": TooLong(
        _inputs("`inputs` must have less than 4095 tokens. Given: 5000"), 4095, 5000, status=422
    ),
    "together": TooLong(
        error(
            "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 5000 `inputs` tokens "
            "and 4096 `max_new_tokens`"
        ),
        8193,
        9096,
        4096,
    ),
    "together, 422": TooLong(
        error(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4440 "
            "`inputs` tokens and 1000 `max_new_tokens`",
            type="invalid_request_error",
            param="max_tokens",
        ),
        4096,
        5440,
        1000,
        status=422,
    ),
    "fireworks": TooLong(error(f"The prompt is too long: 140000, model {MOST}: 131071"), 131071, 140000),
    "sambanova": TooLong(
        error(
            "Requested generation length 4000 is not possible! The prompt is 5000 tokens long: it wants a "
            "sequence length of 9000 but the maximum supported sequence length is just 8192!"
        ),
        8192,
        9000,
        4000,
    ),
    "deepseek": TooLong(
        error(
            f"This model's {MOST} is 131072 tokens. However, you requested 133034 tokens "
            "(125034 in the messages, 8000 in the completion).",
            type="invalid_request_error",
            code="invalid_request_error",
        ),
        131072,
        133034,
        8000,
    ),
    "llama.cpp": TooLong(
        error("no room", code=400, type="exceed_context_size_error", n_prompt_tokens=5000, n_ctx=2048),
        2048,
        5000,
    ),
    "llama.cpp, a sentence": TooLong(
        error("the request exceeds the available context size. try increasing it", code=500), status=500
    ),
    "llama-cpp-python": TooLong(error("Requested tokens (5000) exceed context window of 4096"), 4096, 5000),
    "lm studio": TooLong(
        error(
            "Trying to keep the first 5000 tokens when context the overflows, and the model is loaded with "
            "context length of only 4096 tokens."
        ),
        4096,
        5000,
    ),
    "lm studio, greater": TooLong(
        error("The number of tokens to keep from the initial prompt is greater than the context length")
    ),
    "lm studio, n_keep": TooLong(error("request failed: n_keep: 5000>= n_ctx: 4096"), 4096, 5000),
    "lm studio, reached": TooLong(
        error(
            "Reached context length of 4096 tokens with this model, which does not currently support "
            "context overflow. Try reloading it with a larger context length or shorter prompt."
        ),
        4096,
    ),
    "tabby": TooLong(error("Prompt length 5000 is greater than max_seq_len 4000"), 4000, 5000),
    "ollama": TooLong(error("prompt too long; exceeded max context length by 952 tokens")),
    "ollama, input": TooLong("the input length exceeds the context length", status=500),
    "anthropic": TooLong(
        error("prompt is too long: 209303 tokens > 200000 maximum", type="invalid_request_error"),
        200000,
        209303,
    ),
    "anthropic, a sum": TooLong(
        error("input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000"),
        200000,
        212181,
        32768,
    ),
    "litellm quoting": TooLong(
        error(
            'litellm.ContextWindowExceededError: b\'{"type":"error","error":{"message":'
            '"prompt is too long: 209303 tokens > 200000 maximum"}}\'',
            code="400",
        ),
        200000,
        209303,
    ),
    "bedrock": TooLong(error("Input is too long for requested model.")),
    "bedrock, its gateway": TooLong({"Message": "Input is too long for requested model."}),
    "workers ai": TooLong(
        {
            "errors": [
                {
                    "message": "AiError: The estimated number of input and maximum output tokens (5000) "
                    "exceeded this model context window limit (4000).",
                    "code": 5021,
                }
            ],
            "success": False,
            "result": {},
            "messages": [],
        },
        4000,
        5000,
    ),
    "watsonx": TooLong(
        {
            "errors": [
                {
                    "code": "invalid_input_argument",
                    "message": "Invalid input argument for Model: the number of input tokens 5000 cannot "
                    "exceed the total tokens limit 4000 for this model",
                }
            ],
            "trace": "x",
            "status_code": 400,
        },
        4000,
        5000,
    ),
    "ernie": TooLong({"error_code": 336007, "error_msg": "the input is too long"}),
    "a problem": TooLong({"title": "Bad Request", "status": 400, "detail": "The prompt is too long."}),
    "bedrock, counted": TooLong(
        error("Too many input tokens. Max input tokens: 8192, request input token count: 9000 "), 8192, 9000
    ),
    "gemini": TooLong(
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1196265) exceeds the maximum number of tokens allowed "
                    "(1048575).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        1048575,
        1196265,
    ),
    "gemini, one number": TooLong(
        error("The input token count exceeds the maximum number of tokens allowed 1048576."), 1048576
    ),
    "vertex": TooLong(
        error("the input token count is 1200000 but model only supports up to 1048576."), 1048576, 1200000
    ),
    "gemini, bytes": TooLong(error("Request payload size exceeds the limit: 20971520 bytes.")),
    "cohere": TooLong(
        error("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000."),
        4081,
        5000,
    ),
    "mistral": TooLong(
        error(
            f"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 {MOST}",
            code="3051",
        ),
        32768,
        40000,
    ),
    "mistral, the code alone": TooLong(error("too much", type="invalid_request_prompt", code=3051)),
    "groq": TooLong(error("Please reduce the length of the messages.", code="context_length_exceeded")),
    "cerebras": TooLong(
        error("Please reduce the length of the messages. Current length is 9000 while limit is 8192"),
        8192,
        9000,
    ),
    "xai": TooLong(
        error("This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
        131072,
        537812,
    ),
    "copilot": TooLong(
        error(
            "prompt token count of 128573 exceeds the limit of 128000",
            code="model_max_prompt_tokens_exceeded",
        ),
        128000,
        128573,
    ),
    "github models": TooLong(
        error("Request body too large for the model. Max size: 8000 tokens.", code="tokens_limit_reached"),
        8000,
        status=413,
    ),
    "qwen": TooLong(
        error("InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"), 30720
    ),
    "moonshot": TooLong(error("Your request exceeded model token limit: 8192 (requested: 9000)"), 8192, 9000),
    "moonshot, a sentence": TooLong(error("Input token length too long")),
    "glm": TooLong(error("Prompt exceeds max length", code="1261")),
    "glm, in Chinese": TooLong(error("Prompt 超长", code="1")),
    "in Chinese": TooLong(error("输入长度超过模型的最大长度限制")),
    "minimax": TooLong(error("invalid params, context window exceeds limit (2013)")),
    "perplexity": TooLong(error("The total length of all messages is too long.")),
    "cloudflare": TooLong(
        error("input and maximum output tokens (5000) exceeded this model context window limit (4096)."),
        4096,
        5000,
        status=413,
    ),
    "tensorrt": TooLong(error("Prompt length (5000) exceeds maximum input length (4096)."), 4096, 5000),
    "tensorrt-llm": TooLong(
        error(
            "default_max_tokens (-905) should be greater than 0, max_num_tokens (4096) - prompt_len (5000) - "
            "query_token_len (1)"
        ),
        4096,
        5000,
    ),
    "a request": TooLong(
        error("Your request is too long for this model (9000 tokens; limit: 8192 tokens)."), 8192, 9000
    ),
    "a request's tokens": TooLong(error("request too large: 9000 tokens exceeds context 8192"), 8192, 9000),
    "more than": TooLong(
        error("Request contains 9000 tokens, which is more than the 8192 tokens the model supports."),
        8192,
        9000,
    ),
    "of": TooLong(error("Token limit exceeded: 9000/8192"), 8192, 9000),
    "a plan beside it": TooLong(
        error("9000 tokens > 8192 maximum. A longer context is not available for your organization."),
        8192,
        9000,
    ),
    "too many messages": TooLong(error("Invalid 'messages': array too long, maximum length 2048, got 2500.")),
    "an html page": TooLong("<html><body>413 Request Entity Too Large</body></html>", status=413),
    "anthropic, 413": TooLong(
        error("Request exceeds the maximum size", type="request_too_large"), status=413
    ),
}

SURELY_TOO_LONG = (
    "Your prompt is too long.",
    "prompt tokens too long",
    "Input length too long",
    "The conversation is too large for this model.",
    "Your messages are too long, shorten them",
    "the context is too long",
    "Input prompt (9000 tokens) is too long and exceeds the limit of 8192",
    "Your input is far too long",
    "`prompt` is too long",
    "Prompt is longer than max_seq_len",
    "Input length 9000 exceeds max_input_len 8192",
    "Prompt exceeds the maximum",
    "Input exceeds maximum allowed tokens",
    "input tokens limit exceeded",
    "The number of tokens in your prompt exceeds what the model takes",
    "number of input tokens (9000) has exceeded max_prompt_tokens (8192) limit",
    "the prompt exceeds the context window of this model",
    "This request would exceed the model's context",
    "Model context limit exceeded",
    "Context size has been exceeded.",
    "The context window is too small for these messages: 9000 tokens",
    "Error: model_context_window_exceeded",
    "input is too large to process. increase the physical batch size",
    "Total tokens of image and text exceed max message tokens.",
    "Unable to submit the request: the input token count is 40000 but the model only supports up to 32768.",
    "Request body is too large",
    "9000 tokens > 8192: this is more than one can send",
    "prompt is too long: the thinking budget counts too; upgrade your plan for a larger context",
    "Prompt has 9000 tokens, but this model supports 8192",
    "max context tokens is 8192 but got 9000",
    "Token limit reached: 9000 > 8192",
    "The request is too long.",
    "request was too large: use fewer tokens",
    "prompt is too long: 9000 tokens > 8192 maximum, a longer context is not part of your plan",
    "The prompt is too long. Buy credits for a model with a larger context.",
    "This request exceeds the model's context window. Start a new conversation or wait for compaction.",
    "Maximum context length exceeded: today's models take more",
    "Your prompt contains 9000 tokens. The limit is 8192. Other models fit your budget.",
    "tokens数量超过限制",
    "请求内容过长",
)
"""Sentences that leave no doubt, with whatever status."""

SOMETHING_ELSE: dict[str, tuple[int, object]] = {
    "a schema": (
        400,
        error("Invalid schema for function 'f': In context=('properties', 'x'), missing items."),
    ),
    "a parameter": (400, error("Unknown parameter: 'context_window'.", code="unknown_parameter")),
    "a long parameter": (400, error("Unsupported parameter: 'max_context_length' exceeds what is known")),
    "an argument": (400, error("Unrecognized request argument supplied: context_length")),
    "extra inputs": (
        400,
        {"detail": [{"loc": ["body", "max_context"], "msg": "Extra inputs are not permitted"}]},
    ),
    "a key": (401, error(f"the key is longer than the {MOST}")),
    "a plan": (403, error("context length exceeded: your plan has a smaller one")),
    "a model": (404, error(f"no such model with a {MOST}")),
    "a form": (422, error(f"This model's {MOST} is 5 tokens")),
    "a policy": (
        400,
        error("filtered due to the prompt triggering the content management policy", code="content_filter"),
    ),
    "a long policy": (400, error("the prompt is too long to pass our content policy", code="content_filter")),
    "too many tools": (400, error("Invalid 'tools': array too long. Expected maximum length 128, got 200.")),
    "too many functions": (400, error("too many functions: the maximum is 64")),
    "a description": (
        400,
        error("Invalid 'tools[0].function.description': string too long, maximum length 1024."),
    ),
    "a text": (
        400,
        error("Invalid 'messages[3].content': string too long. Expected maximum length 10485760."),
    ),
    "tokens a day": (400, error("Rate limit: too many tokens per day (TPD), limit 100000")),
    "a quota": (400, error("You exceeded your current quota for tokens, please check your plan")),
    "an image": (
        400,
        error("messages.0.content.1.image.source: image exceeds 5 MB maximum: 5316852 bytes > 5242880"),
    ),
    "a large image": (413, error("The image is too large")),
    "an image's sides": (400, error("image dimensions exceed max allowed size: 8000 pixels")),
    "a file": (400, error("The file is too large: its size exceeds the limit of 32 MB")),
    "the answer's limit": (
        400,
        error(
            "max_tokens is too large: 100000. It supports at most 16384 completion tokens, whereas you ..."
        ),
    ),
    "the answer's number": (
        400,
        error("max_tokens: 100000 > 8192, the maximum allowed number of output tokens"),
    ),
    "the answer's range": (400, error("Range of max_tokens should be [1, 8192]")),
    "bedrock's answer": (400, error("The maximum tokens you requested exceeds the model limit of 4096.")),
    "a bound": (400, error("max_tokens must be less than or equal to 8192, less than the context_window")),
    "pairing": (400, error("An assistant message with 'tool_calls' must be followed by tool messages")),
    "a word": (400, error("context must be a string")),
    "a request that is quoted": (
        400,
        {
            "error": error("Invalid value", param="seed"),
            "request": {"messages": [{"role": "user", "content": "the prompt is too long"}]},
        },
    ),
    "workers ai, a form": (
        400,
        {"errors": [{"message": "AiError: Bad input: required at '/' are 'prompt'", "code": 5006}]},
    ),
    "a problem of the form": (
        400,
        {"title": "One or more errors occurred.", "errors": {"$.messages": ["The prompt is too long."]}},
    ),
    "a gateway": (400, {"Message": "Malformed input request: #: extraneous key [context] is not permitted"}),
    "tgi, a form": (422, _inputs("`temperature` must be strictly positive")),
    "a form that names its fields": (
        422,
        error("unknown variant, expected one of `inputs`, `max_tokens`: the prompt exceeds nothing"),
    ),
    "tgi, the answer": (422, _inputs("`max_new_tokens` must be <= 512. Given: 1024 tokens")),
    "a long name": (400, error("max_seq_len must be greater than 0")),
    "nothing": (400, ""),
}
