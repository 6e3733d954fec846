"""`python -m rosmo`: the command line."""

import sys

from rosmo.cli import main

sys.exit(main())
