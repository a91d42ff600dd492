"""``python -m colstore_io`` is ``colstore-io``."""

import sys

from .cli import main

sys.exit(main())
