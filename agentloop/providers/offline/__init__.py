"""The offline model, which needs no key and no network."""

from agentloop.providers.offline.model import OfflineModel
