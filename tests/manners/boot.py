"""In the place of kit/clusters/boot.py: an agent whose ranks use groups with NCCL's manners."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

if __name__ == "__main__":
    from kit.clusters import boot

    if sys.argv[1] == "agent":
        from tests.manners import take_over

        take_over()
    boot.main()
