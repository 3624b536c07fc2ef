"""Which compiled form of a kernel meets which arguments. Nothing is compiled: Triton's part is played by a fake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jade.learn.layers import launch
from jade.learn.layers.launch import Kernel, key_of

FRESH = SimpleNamespace(launch_enter_hook=None, launch_exit_hook=SimpleNamespace(calls=[]))


class JITFunction:
    """Named as Triton's own: takes two tensors, a number, a float and a constant. Remembers its ordinary launches."""

    def __init__(self, *, looks: bool = False, backend: str = "cuda", tells: bool = True) -> None:
        names = ("x", "y", "num", "eps", "WIDTH")
        self.params = [
            SimpleNamespace(name=name, do_not_specialize=name == "num" and not looks, is_constexpr=name == "WIDTH")
            for name in names
        ]
        self.plain: list[tuple[object, ...]] = []
        self.direct: list[tuple[object, ...]] = []
        self.fails: Exception | None = None
        self._backend, self._tells = backend, tells

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launched(*arguments: object, **options: int) -> object:
            self.plain.append((grid, *arguments, *options.values()))
            metadata = SimpleNamespace(target=SimpleNamespace(backend=self._backend))
            compiled = SimpleNamespace(run=self._start, function=7, packed_metadata="about", metadata=metadata)
            return compiled if self._tells else None

        return launched

    def _start(self, *arguments: object) -> None:
        if self.fails is not None:
            raise self.fails
        self.direct.append(arguments)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_is_known", lambda function: type(function).__name__ == "JITFunction")
    monkeypatch.setattr(launch, "_runtime", lambda: FRESH)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 100 + device, raising=False)


def tensors(*, shift: int = 0, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    """Of which the second begins so many numbers behind a multiple of 16 bytes."""
    return torch.zeros(64, dtype=dtype), torch.zeros(64, dtype=dtype)[shift:]


def go(kernel: Kernel, pair: tuple[Tensor, Tensor], num: int = 5, eps: float = 0.5, width: int = 8, **how: int) -> None:
    kernel((3,), pair, (num, eps), (width,), **how)


def test_a_form_is_launched_directly_from_the_second_time_on() -> None:
    function, (x, y) = JITFunction(), tensors()
    kernel = Kernel(function)
    kernel((3, 2), (x, y), (5, 0.5), (8,), warps=8)
    assert function.plain == [((3, 2), x, y, 5, 0.5, 8, 8, 3)]
    kernel((4, 2), (x, y), (6, 0.25), (8,), warps=8)
    kernel((5,), (x, y), (1, 0.0), (8,), warps=8)
    assert len(function.plain) == 1
    pointers = x.data_ptr(), y.data_ptr()
    assert function.direct == [
        (4, 2, 1, 100, 7, "about", None, None, None, *pointers, 6, 0.25, 8),
        (5, 1, 1, 100, 7, "about", None, None, None, *pointers, 1, 0.0, 8),
    ]


OTHERS: dict[str, Any] = {
    "begins elsewhere": lambda kernel: go(kernel, tensors(shift=1)),
    "is wider": lambda kernel: go(kernel, tensors(dtype=torch.float32)),
    "has another constant": lambda kernel: go(kernel, tensors(), width=16),
    "has a constant of another kind": lambda kernel: go(kernel, tensors(), width=True),
    "has a number of another kind": lambda kernel: go(kernel, tensors(), eps=1),
    "has more threads": lambda kernel: go(kernel, tensors(), warps=8),
    "has more stages": lambda kernel: go(kernel, tensors(), stages=4),
    "has a number of 64 bits": lambda kernel: go(kernel, tensors(), num=1 << 31),
}


@pytest.mark.parametrize("other", OTHERS)
def test_arguments_of_another_kind_never_meet_a_form_that_is_there(other: str) -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors(), width=1)
    go(kernel, tensors())
    OTHERS[other](kernel)
    assert (len(function.plain), len(function.direct)) == (3, 0)


@pytest.mark.parametrize("num", [1, 15, 16, 17, (1 << 31) - 1])
def test_a_form_is_the_same_for_all_numbers_of_32_bits(num: int) -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors(), num=48)
    go(kernel, tensors(), num=num)
    assert (len(function.plain), len(function.direct)) == (1, 1)


def test_a_device_has_forms_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    go(kernel, tensors())
    assert (len(function.plain), len(function.direct)) == (2, 0)
    go(kernel, tensors())
    assert function.direct[0][3] == 101


def test_which_tensors_are_aligned_is_told_apart() -> None:
    pair = tensors()
    starts = ((0, 16), (8, 16), (16, 8), (8, 8), (32, 160))
    keys = [key_of(some, pair, (1,), (), 4, 3) for some in starts]
    assert keys[0] == keys[4]
    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    "function",
    [JITFunction(looks=True), JITFunction(backend="hip"), JITFunction(tells=False)],
    ids=["looks at numbers", "another backend", "compiled form not told"],
)
def test_a_kernel_that_may_be_compiled_for_more_is_always_launched_by_triton(function: JITFunction) -> None:
    kernel = Kernel(function)
    for _ in range(3):
        go(kernel, tensors())
    assert (len(function.plain), len(function.direct)) == (3, 0)


def test_numbers_of_64_bits_are_always_launched_by_triton() -> None:
    function = JITFunction()
    kernel = Kernel(function)
    for num in (1 << 31, 1 << 40, -(1 << 31) - 1):
        go(kernel, tensors(), num=num)
    assert (len(function.plain), len(function.direct)) == (3, 0)


def test_a_form_that_cannot_be_started_is_given_up() -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors())
    function.fails = TypeError("function takes exactly 4 arguments")
    go(kernel, tensors())
    function.fails = None
    go(kernel, tensors())
    assert (len(function.plain), len(function.direct)) == (3, 0)


def test_an_error_of_the_device_is_not_hidden() -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors())
    function.fails = RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal"):
        go(kernel, tensors())
    assert len(function.plain) == 1


@pytest.mark.parametrize("hook", [print, SimpleNamespace(calls=[print])])
def test_who_watches_launches_sees_them(hook: object, monkeypatch: pytest.MonkeyPatch) -> None:
    function = JITFunction()
    kernel = Kernel(function)
    go(kernel, tensors())
    with monkeypatch.context() as watching:
        watching.setattr(launch, "_runtime", lambda: SimpleNamespace(launch_enter_hook=None, launch_exit_hook=hook))
        go(kernel, tensors())
    go(kernel, tensors())
    assert (len(function.plain), len(function.direct)) == (2, 1)


def test_the_interpreter_is_asked_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("there is no GPU"))

    class InterpretedFunction(JITFunction):
        pass

    function = InterpretedFunction()
    kernel = Kernel(function)
    go(kernel, tensors())
    go(kernel, tensors())
    assert (len(function.plain), len(function.direct)) == (2, 0)
