"""`models`: what the server offers."""

import asyncio
import json
from typing import Any

import click

from agentloop.cli.options import OFFLINE, SERVER, options
from agentloop.cli.settings import Settings, settings_of_call
from agentloop.cli.terminal import StandardOutput, columns, error_console, run_to_end, warn
from agentloop.errors import BadAnswerError, ModelError, ModelUnavailableError
from agentloop.providers.openai import VENDOR_ERRORS, LoopClients, Server, ServerChoice, understand

_SECONDS = 30.0
ASKING_SECONDS = 10.0
"""So long a server is asked on the way to a run."""


@click.command()
@options(SERVER)
def models(**_: Any) -> int:
    """List the models that the server offers."""
    settings = settings_of_call()
    output = StandardOutput.claimed()
    if not settings.names_server:
        warn(error_console(), "no OPENAI_API_KEY and no base URL: only the offline model is here")
        names = [OFFLINE]
    else:
        names = run_to_end(offered(ServerChoice(model=settings.model, **settings.server).server()))
    run_to_end(output.write("".join(map(columns, names))))
    return 0


async def names_at(settings: Settings) -> list[str] | None:
    """The names of the models at the server of the settings; None where it does not answer in time."""
    try:
        async with asyncio.timeout(ASKING_SECONDS):
            return await offered(ServerChoice(model=settings.model, **settings.server).server())
    except (ModelUnavailableError, TimeoutError):
        return None
    except ModelError:
        return []


async def offered(server: Server) -> list[str]:
    """The names of the server's models, in order.

    Raises:
        ModelError: it cannot be reached, refuses the key or has no such list.
    """
    clients = LoopClients(_SECONDS)
    try:
        client = await clients.client(server)
        answer = await client.models.with_raw_response.list()
        return _names(answer.http_response.content, server)
    except VENDOR_ERRORS as error:
        failure = understand(error, server)
    finally:
        await clients.close()
    raise failure.error


def _names(body: bytes, server: Server) -> list[str]:
    try:
        listed = json.loads(body)["data"]
        return sorted(str(model["id"]) for model in listed)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadAnswerError(
            f"{server.place} answers with no list of models: check the base URL, which often ends in /v1"
        ) from error
