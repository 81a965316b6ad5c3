"""`python -m anyloss`: the command line."""

import sys

from anyloss.cli import main

sys.exit(main())
