"""`python -m procurl`: the command line, as `procurl` is."""

import sys

from procurl.cli import main

if __name__ == "__main__":
    sys.exit(main())
