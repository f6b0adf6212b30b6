"""What the launchers run: `python -P boot.py agent ...` or `python -P boot.py controller ...`.

`-P` keeps the working directory off the path, where a learner's html.py would replace the library's. The folder that
holds `kit` therefore comes last on the path, which finds it in a clone as well as when installed.
"""

import sys
from pathlib import Path


def main() -> None:
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.append(root)
    from kit.clusters.processes import raise_open_files

    raise_open_files()
    if sys.argv[1] == "agent":
        from kit.clusters.host.agent import main as run
    else:
        from kit.clusters.controller import main as run
    run(sys.argv[2:])


if __name__ == "__main__":
    main()
