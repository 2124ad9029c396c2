"""``python -m costlens`` is the same command as ``costlens``."""

from costlens.cli.app import main

if __name__ == "__main__":
    main()
