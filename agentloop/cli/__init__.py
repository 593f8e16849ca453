"""The command line: `python -m agentloop` and the console script `agentloop` are this program."""
