"""`python -m procurl.cli`: the same as `python -m procurl`."""

import sys

from procurl.cli import main

if __name__ == "__main__":
    sys.exit(main())
