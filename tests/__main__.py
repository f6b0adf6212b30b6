"""`python3 tests`: set everything up, then run the tests.

Further arguments are pytest's, for instance `tests/unit -k trace`. `--quick` gives an answer in two minutes;
`--full-matrix` takes 1 to 8 ranks instead of 2 and 3; `-n 0` runs one test at a time instead of three; `--venv DIR`
puts the environment elsewhere; `--set-up-only` stops before the tests.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    if sys.version_info < (3, 11):
        sys.exit(
            "Lockstep needs Python 3.11 or newer; this is %d.%d. Try for instance: python3.12 tests"
            % sys.version_info[:2]
        )
    sys.path.insert(0, os.path.join(ROOT, "binder"))
    import set_up

    arguments = sys.argv[1:]
    folder = set_up.ROOT / set_up.take_option(arguments, "--venv", ".venv")
    python = set_up.environment(folder, extras=("dev",))
    if "--set-up-only" in arguments:
        return
    os.chdir(ROOT)
    if not any(argument.startswith(("-n", "--pdb", "--numprocesses")) for argument in arguments):
        arguments = ["-n", "3", "--dist", "worksteal", *arguments]
    set_up.run(python, "-m", "pytest", *arguments)


if __name__ == "__main__":
    main()
