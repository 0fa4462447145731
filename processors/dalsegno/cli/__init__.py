"""The command line: one file per noun, loaded only when it is used.

stdout carries data alone; progress, logs and hints go to stderr. Exit codes follow the outcome
(see ``dalsegno.errors``).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script ``dalsegno``."""
    try:
        from dalsegno.cli.frame import run
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package == "dalsegno":
            raise
        print(
            f"error: the command line needs the package {package!r}, which is not installed; "
            "to do: pip install 'dalsegno[service]' (with the embedded broker: 'dalsegno[service,embedded]')",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
