"""What is known of models without asking anybody: their windows and prices; the one door to genai-prices.

The figures are those bundled with the installed package, never fetched. Loading them takes about 150 ms, so
that is done when one is first asked for.
"""

from types import ModuleType

from agentloop.usage import Usage


def known_window(model: str) -> int | None:
    """The most tokens the model takes, answer included; None where it is not known. Never raises.

    A name with a maker in front, such as `openai/gpt-4o`, is also looked up as OpenRouter's.
    """
    for provider in (None, "openrouter") if "/" in model else (None,):
        try:
            snapshot = _published().data_snapshot.get_snapshot()
            _, found = snapshot.find_provider_model(model, None, provider, None)
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
        tokens = _published().Usage(
            input_tokens=usage.input_tokens, cache_read_tokens=cached, output_tokens=usage.output_tokens
        )
        found = _published().calc_price(tokens, model, provider_api_url=base_url or None)
        return float(found.total_price)
    except Exception:  # noqa: BLE001 — a name nobody knows, or data of another shape: not known
        return None


def _published() -> ModuleType:
    import genai_prices.data_snapshot

    return genai_prices
