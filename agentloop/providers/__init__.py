"""What answers: servers, and models in this process. Each provider has a face of its own."""

from agentloop.providers.local import admitted, answer_of, streamed
