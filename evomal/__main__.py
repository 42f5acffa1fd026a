"""The command `evomal`, also as `python -m evomal`."""

import sys

from evomal.extras import missing_library
from evomal.waiting_threads import let_threads_sleep


def main() -> None:
    """Run the command; without the libraries that it needs, say how to install them."""
    let_threads_sleep()
    try:
        from evomal.cli import main as run
    except ModuleNotFoundError as error:
        found = missing_library("the command evomal", error)
        if found is error:
            raise
        sys.stderr.write(f"evomal: {found}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
