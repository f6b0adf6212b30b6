"""`python3 labs`: set everything up, then open the labs in JupyterLab.

Further arguments are those of `lockstep lab`, for instance `--no-browser`; `--venv DIR` puts the environment elsewhere.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    if sys.version_info < (3, 11):
        sys.exit(
            "Lockstep needs Python 3.11 or newer; this is %d.%d. Try for instance: python3.12 labs"
            % sys.version_info[:2]
        )
    sys.path.insert(0, os.path.join(ROOT, "binder"))
    import set_up

    arguments = sys.argv[1:]
    folder = set_up.ROOT / set_up.take_option(arguments, "--venv", ".venv")
    python = set_up.environment(folder)
    own_copy = ["--dir", os.path.join(ROOT, "lockstep-labs")]  # a --dir among the arguments comes later and wins
    set_up.run(python, "-m", "kit.cli", "lab", *own_copy, *arguments)


if __name__ == "__main__":
    main()
