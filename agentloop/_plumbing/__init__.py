"""Small helpers that know nothing of agents."""
