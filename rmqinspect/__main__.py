"""`python -m rmqinspect`: the command line without the console script."""

import sys

from rmqinspect.cli import main

if __name__ == "__main__":
    sys.exit(main())
