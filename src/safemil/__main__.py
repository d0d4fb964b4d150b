"""`python -m safemil` is the same as `safemil`."""

import sys

from safemil.cli import main

sys.exit(main())
