"""agentloop/_plumbing."""
