"""`python -m agentloop`."""

from agentloop.cli.main import main

if __name__ == "__main__":
    main()
