"""agentloop/providers/offline."""

from agentloop.providers.offline.model import OfflineModel
