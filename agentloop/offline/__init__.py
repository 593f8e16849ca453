"""A rule-based stand-in for a model: no key, no network, the same answers always.

It knows only what stands in the messages that it is sent. Its one real job is to read files of a kind
through the tools `list_files` and `read_file` and say what each does; it also calls a tool that is named
plainly, and tells what was said to it as long as that is in sight.
"""

from agentloop.offline.model import OfflineModel

__all__ = ["OfflineModel"]
