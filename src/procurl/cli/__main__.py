"""`python -m procurl.cli`."""

import sys

from procurl.cli import main

if __name__ == "__main__":
    sys.exit(main())
