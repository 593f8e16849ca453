"""What is known of models without asking anybody: their windows and prices; the one door to genai-prices.

The figures are those bundled with the installed package, never fetched. Importing this takes about 150 ms,
so it is imported where a window or a price is asked for.
"""

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot

from agentloop.messages import Usage


def known_window(model: str) -> int | None:
    """The most tokens the model takes, answer included; None where it is not known. Never raises.

    A name with a maker in front, such as `openai/gpt-4o`, is also looked up as OpenRouter's.
    """
    for provider in (None, "openrouter") if "/" in model else (None,):
        try:
            _, found = get_snapshot().find_provider_model(model, None, provider, None)
        except Exception:  # noqa: BLE001 — a name nobody knows, or data of another shape: not known
            continue
        if found.context_window:
            return int(found.context_window)
    return None


def price(model: str, usage: Usage, base_url: str | None = None) -> float | None:
    """What the usage costs in US dollars, cached input at its own price; None where no price is known.

    `base_url` names the provider, and a server nobody knows has no price; without it the provider is found
    by the model's name. Never raises.
    """
    cached = min(usage.cached_tokens, usage.input_tokens)
    try:
        tokens = PricedUsage(
            input_tokens=usage.input_tokens, cache_read_tokens=cached, output_tokens=usage.output_tokens
        )
        return float(calc_price(tokens, model, provider_api_url=base_url or None).total_price)
    except Exception:  # noqa: BLE001 — a name nobody knows, or data of another shape: not known
        return None
