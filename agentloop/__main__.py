"""`python -m agentloop`."""

from agentloop.cli import leave_folder_alone

if __name__ == "__main__":
    # Before anything else is imported: Python has put the folder of the call first.
    leave_folder_alone()

    from agentloop.cli.main import main

    main()
