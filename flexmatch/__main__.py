"""`python -m flexmatch` is the command `flexmatch`, also where its script is not on the path."""

import sys

from rewrite_compiler.cli.main import main

sys.exit(main())
