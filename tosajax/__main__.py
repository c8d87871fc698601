"""`python -m tosajax`: the `tosajax` command."""

import sys

from tosajax.cli import main

if __name__ == "__main__":
    sys.exit(main())
