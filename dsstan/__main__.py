"""``python -m dsstan``."""

from dsstan.cli import main

if __name__ == "__main__":
    main()
