"""``python -m dsstan``."""

from dsstan.cli.command_line import main

if __name__ == "__main__":
    main()
