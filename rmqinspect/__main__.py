"""`python -m rmqinspect`: the command line without the console script."""

import sys

from rmqinspect.cli import main

sys.exit(main())
