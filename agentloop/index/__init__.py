"""The index that stands beside the prose of a summary: what must be kept exact, computed without a model."""

from agentloop.index.lines import LABELS, index_of

__all__ = ["LABELS", "index_of"]
