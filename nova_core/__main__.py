"""``python -m nova_core``: the command ``nova``."""

from nova_core.cli import main

if __name__ == "__main__":
    main()
