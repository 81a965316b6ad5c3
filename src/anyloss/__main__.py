"""`python -m anyloss`: the command line."""

import sys

from anyloss.cli import main

if __name__ == "__main__":
    sys.exit(main())
