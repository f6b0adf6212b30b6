"""In the place of kit/clusters/boot.py: an agent each of whose ranks has a GPU that `cuda` plays, and gloo."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

if __name__ == "__main__":
    from kit.clusters import boot

    if sys.argv[1] == "agent":
        from tests.manners import cuda

        cuda.take_over()
    boot.main()
