"""Who gets which device, and the words for what lies between them: decided from findings, so no GPU is needed here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kit.clusters.devices import Accelerator, plan, survey, unseen
from kit.clusters.links import Link, links, parse_topology, renumber
from kit.clusters.request import Request

BUILD = "torch 2.13.0"


def gpus(count: int, kind: str = "cuda") -> tuple[Accelerator, ...]:
    return tuple(Accelerator(f"{kind}:{index}", "H200", 141 * 10**9) for index in range(count))


def test_without_gpus_all_compute_on_the_cpu() -> None:
    chosen = plan(Request(3), (), BUILD)
    assert (chosen.backend, chosen.devices, chosen.notes) == ("gloo", ("cpu",) * 3, ())


def test_a_gpu_for_each_rank_uses_its_own_backend() -> None:
    chosen = plan(Request(2), gpus(4), BUILD)
    assert (chosen.backend, chosen.devices, chosen.notes) == ("nccl", ("cuda:0", "cuda:1"), ())
    assert plan(Request(2, backend="nccl"), gpus(2), BUILD).devices == ("cuda:0", "cuda:1")
    assert plan(Request(2, device="cuda", backend="gloo"), gpus(2), BUILD).backend == "gloo"


def test_gpus_of_intel_compute_and_gloo_moves_their_data() -> None:
    chosen = plan(Request(2), gpus(2, "xpu"), BUILD)
    assert (chosen.backend, chosen.devices) == ("gloo", ("xpu:0", "xpu:1"))
    assert "gloo moves their data through the CPU's memory" in chosen.notes[0]


def test_a_gpu_that_torch_cannot_use_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node := tmp_path / "nvidia0").touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "built for the CPU alone" in unseen((), [str(node)])[0]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "its driver does not answer" in unseen((), [str(node)])[0]
    assert unseen(gpus(1), [str(node)]) == unseen((), [str(tmp_path / "none")]) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert unseen((), [str(node)]) == (), "whoever hides it knows"


def test_the_cpu_can_be_asked_for_where_there_are_gpus() -> None:
    assert plan(Request(2, device="cpu"), gpus(4), BUILD).devices == ("cpu", "cpu")


def test_more_ranks_than_gpus_stay_on_the_cpu_and_say_why() -> None:
    chosen = plan(Request(4), gpus(1), BUILD)
    assert (chosen.backend, chosen.devices) == ("gloo", ("cpu",) * 4)
    assert "4 ranks and 1 GPU" in chosen.notes[0] and "device='cuda' shares" in chosen.notes[0]


def test_ranks_share_gpus_when_told_to() -> None:
    chosen = plan(Request(3, device="cuda"), gpus(2), BUILD)
    assert (chosen.backend, chosen.devices) == ("gloo", ("cuda:0", "cuda:1", "cuda:0"))
    assert "3 ranks share 2 GPUs" in chosen.notes[0]


@pytest.mark.parametrize(
    ("request_", "found", "remedy"),
    [
        (Request(4, device="cuda"), (), "no such accelerator was found by torch 2.13.0. Write device='auto'"),
        (Request(4, device="xpu"), gpus(4), "no such accelerator"),
        (Request(4, backend="nccl"), gpus(2), "4 ranks have 2 GPUs: write ranks=2, or backend='gloo'"),
        (Request(4, device="cuda", backend="nccl"), gpus(1), "4 ranks have 1 GPU: write ranks=1"),
        (Request(2, backend="nccl"), (), "torch 2.13.0 found none: write backend='auto'"),
        (Request(2, device="cpu", backend="nccl"), gpus(2), "told to use the CPU"),
        (Request(2, device="cuda", backend="xccl"), gpus(2), "by gloo, through the CPU's memory. Write backend='auto'"),
    ],
)
def test_what_cannot_be_had_is_refused(request_: Request, found: tuple[Accelerator, ...], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        plan(request_, found, BUILD)


def test_a_build_for_the_cpu_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, None, raising=False)
    monkeypatch.setattr("os.fork", lambda: pytest.fail("forked to look for GPUs"))
    assert survey() == ()


TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tPHB\tNODE\t0-47\t0\t\tN/A\n"
    "GPU2\tSYS\tPHB\t X \tSYS\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\t X \t\t\t\n\n"
    "Legend:\n\n  X    = Self\n"
)


def test_topology_is_read_from_nvidia_smis_table() -> None:
    found = parse_topology(TOPOLOGY)
    assert found[0, 1] == found[1, 0] == "NVLink, 18 links"
    assert found[0, 2] == "PCIe and the link between CPU sockets"
    assert found[1, 2] == "PCIe through the CPU"
    assert len(found) == 6
    assert parse_topology("No devices were found") == {}


def test_torchs_numbers_differ_when_devices_are_hidden() -> None:
    assert renumber(parse_topology(TOPOLOGY), [2, 0]) == {
        (1, 0): "PCIe and the link between CPU sockets",
        (0, 1): "PCIe and the link between CPU sockets",
    }


def test_like_links_are_said_once() -> None:
    assert links(("cpu",) * 4, "gloo", {}) == (Link("every two ranks", "TCP over lo, within this host's memory"),)
    assert links(("cpu",) * 2, "gloo", {})[0].between == "ranks 0 and 1"
    assert links(("cpu",), "gloo", {}) == ()


def test_unlike_links_are_said_one_by_one() -> None:
    told = links(("cuda:0", "cuda:1", "cuda:2"), "nccl", parse_topology(TOPOLOGY))
    assert [link.between for link in told] == ["ranks 0 and 1", "ranks 0 and 2", "ranks 1 and 2"]
    assert told[0].kind == "NVLink, 18 links"
    assert "does not say" in links(("cuda:0", "cuda:1"), "nccl", {})[0].kind
