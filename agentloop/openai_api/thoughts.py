"""How what a model thought stands in messages: the fields, the types of parts, and the seals."""

SEALED_FIELDS = frozenset({"thinking_blocks", "reasoning_details"})
"""Lists of parts that are of use to their server whole alone.

LiteLLM's (https://docs.litellm.ai/docs/reasoning_content) and OpenRouter's
(https://openrouter.ai/docs/use-cases/reasoning-tokens).
"""

FIELDS = frozenset({"reasoning_content", "reasoning"}) | SEALED_FIELDS
"""Fields of a message beside its content.

DeepSeek's (https://api-docs.deepseek.com/guides/reasoning_model), and that of vLLM and OpenRouter
(https://docs.vllm.ai/en/latest/features/reasoning_outputs.html).
"""

TOLD_PARTS = frozenset({"thinking", "reasoning", "reasoning.text", "reasoning.summary"})
"""Types of parts that say it in words.

Anthropic's and Mistral's `thinking` (https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking,
https://docs.mistral.ai/capabilities/reasoning/), `reasoning` of the Responses API
(https://platform.openai.com/docs/guides/reasoning), and OpenRouter's.
"""

SEALED_PARTS = frozenset({"redacted_thinking", "reasoning.encrypted"})
"""Types of parts that hold it sealed in `data`: Anthropic's and OpenRouter's."""

PARTS = TOLD_PARTS | SEALED_PARTS

SEALS = frozenset({"signature", "thought_signature", "thoughtSignature"})
"""Fields that prove whose it is: Anthropic's, and Gemini's, which stands in calls too.

https://ai.google.dev/gemini-api/docs/thought-signatures
"""
