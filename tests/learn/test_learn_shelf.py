"""Weights that lie where other processes have them open."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jade.errors import BackboneFailed
from jade.learn.rollouts import beside
from jade.learn.rollouts.shelf import Reader, Shelf

CPU = torch.device("cpu")


def policy_with(**weights: Tensor) -> Any:
    def sampler_weights() -> Iterator[tuple[str, Tensor]]:
        yield from weights.items()

    return SimpleNamespace(sampler_weights=sampler_weights)


def test_what_is_put_is_what_every_reader_reads_and_each_is_told_once_where(tmp_path: Path) -> None:
    shelf, readers = Shelf(tmp_path, torch.bfloat16, CPU), [Reader(), Reader()]
    for number in range(3):
        shelf.put(policy_with(a=torch.full((2, 3), float(number)), b=torch.arange(4.0)))
        places = [shelf.place_for(reader) for reader in range(2)]
        assert [place is None for place in places] == [number > 0] * 2
        for reader, place in zip(readers, places, strict=True):
            read = dict(reader.read(place, shelf.layout, shelf.dtype))
            reader.done()
            assert read["a"].tolist() == [[number] * 3] * 2
            assert read["b"].tolist() == [0.0, 1.0, 2.0, 3.0]
            assert {weight.dtype for weight in read.values()} == {torch.bfloat16}


def test_the_memory_stays_the_same_until_more_is_needed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, torch.float32, CPU)
    shelf.put(policy_with(a=torch.zeros(5)))
    first = shelf.flat_N
    shelf.place_for(0)
    shelf.put(policy_with(a=torch.ones(5)))
    assert shelf.flat_N is first
    assert shelf.place_for(0) is None
    shelf.put(policy_with(a=torch.ones(7)))
    assert shelf.flat_N is not None
    assert len(shelf.flat_N) == 7
    assert shelf.place_for(0) is not None, "the reader has something else open"


def test_a_file_that_all_have_open_needs_no_name(tmp_path: Path) -> None:
    shelf, reader = Shelf(tmp_path, torch.float32, CPU), Reader()
    for size, is_told in ((5, True), (5, False), (7, True)):
        weights = torch.arange(float(size))
        shelf.put(policy_with(a=weights))
        place = shelf.place_for(0)
        assert (place is not None) == is_told
        read = dict(reader.read(place, shelf.layout, shelf.dtype))
        shelf.take_name_away()
        assert not list(tmp_path.iterdir())
        assert read["a"].tolist() == weights.tolist()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot be asked for room")
def test_weights_that_there_is_no_room_for_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        def allocate(*given: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", allocate)

    fail(errno.EOPNOTSUPP)
    Shelf(tmp_path, torch.float32, CPU).put(policy_with(a=torch.zeros(5)))
    fail(errno.ENOSPC)
    with pytest.raises(BackboneFailed, match=rf"^{tmp_path.parent} has no room .*--shm-size"):
        Shelf(tmp_path, torch.float32, CPU).put(policy_with(a=torch.zeros(5)))


def test_a_handle_is_opened_once_and_read_from_ever_after() -> None:
    block_N, opened, reader = torch.arange(6.0), [], Reader()
    layout = (("a", torch.Size((2, 2))), ("b", torch.Size((2,))))

    def rebuild(name: str) -> Tensor:
        opened.append(name)
        return block_N

    assert dict(reader.read((rebuild, ("block",)), layout, torch.float32))["a"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    block_N += 10
    assert dict(reader.read(None, layout, torch.float32))["b"].tolist() == [14.0, 15.0]
    assert opened == ["block"]


class Deaf:
    """A process that cannot open what another has on the GPU."""

    async def ask(self, what: str, *given: object) -> None:
        assert what == "open"
        raise BackboneFailed("invalid device context")


class Keen(Deaf):
    async def ask(self, what: str, *given: object) -> None:
        assert what == "open"


@pytest.mark.parametrize(
    ("kinds", "memory"), [([Keen, Keen], "cuda"), ([Keen, Deaf], "cpu")], ids=["all can", "one cannot"]
)
async def test_a_gpu_s_memory_is_used_where_all_can_open_it(
    monkeypatch: pytest.MonkeyPatch, kinds: list[type[Deaf]], memory: str
) -> None:
    monkeypatch.setattr(torch, "ones", lambda *shape, device: torch.zeros(1))
    monkeypatch.setattr(beside, "share", lambda probe: (torch.zeros, (1,)))
    lines: Any = [kind() for kind in kinds]
    assert (await beside._shared(torch.device("cuda", 0), lines)).type == memory


async def test_a_gpu_whose_memory_cannot_be_handed_on_is_gone_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: int, device: torch.device) -> Tensor:
        raise RuntimeError("expandable segments cannot be shared")

    monkeypatch.setattr(torch, "ones", refuse)
    assert await beside._shared(torch.device("cuda", 0), []) == CPU
    assert await beside._shared(CPU, []) == CPU
