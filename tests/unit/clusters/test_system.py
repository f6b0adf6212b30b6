"""Memory that may be used: the host's, or what a container's or a batch job's control group allows."""

from __future__ import annotations

from pathlib import Path

from kit.clusters.system import ask, memory

GB = 1_000_000_000


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {64 * GB // 1024} kB\nMemAvailable: {32 * GB // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def near(found: tuple[int, int], total: float, available: float) -> bool:
    return abs(found[0] - total) < 2048 and abs(found[1] - available) < 2048


def test_without_a_limit_it_is_the_hosts(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/user.slice\n", {"user.slice/memory.max": "max\n", "user.slice/memory.current": "5"})
    assert near(memory(root), 64 * GB, 32 * GB)


def test_a_limit_of_an_ancestor_counts_and_a_droppable_cache_does_not(tmp_path: Path) -> None:
    files = {
        "job/memory.max": f"{2 * GB}\n",
        "job/memory.current": f"{GB}\n",
        "job/memory.stat": f"anon 1\ninactive_file {GB // 2}\n",
        "job/step/memory.max": "max\n",
        "job/step/memory.current": "5\n",
    }
    assert near(memory(machine(tmp_path, "0::/job/step\n", files)), 2 * GB, 1.5 * GB)


def test_in_a_container_the_limit_lies_at_the_root(tmp_path: Path) -> None:
    files = {"memory.max": f"{2 * GB}\n", "memory.current": f"{GB // 4}\n"}
    assert near(memory(machine(tmp_path, "0::/../pod\n", files)), 2 * GB, 1.75 * GB)


def test_the_older_kind_of_control_group(tmp_path: Path) -> None:
    files = {
        "memory/docker/a/memory.limit_in_bytes": f"{2 * GB}\n",
        "memory/docker/a/memory.usage_in_bytes": f"{GB}\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": "1\n",
    }
    cgroup = "5:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n"
    assert near(memory(machine(tmp_path, cgroup, files)), 2 * GB, 1 * GB)


def test_here_it_is_something() -> None:
    total, available = memory()
    assert 0 < available <= total


def test_a_command_that_is_not_here_is_no_answer() -> None:
    assert ask(("no-such-command-anywhere",)) is None
    assert ask(("false",)) is None
    assert ask(("echo", "yes")) == "yes\n"
