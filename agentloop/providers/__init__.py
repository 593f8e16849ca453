"""agentloop/providers."""
