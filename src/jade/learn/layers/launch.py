"""Launches of Triton kernels that cost the host little.

Triton looks at every argument of every launch anew, in Python, to find the compiled form that fits, and then asks the
driver about every pointer: 20 microseconds or more, thousands of times an update. Here compiled forms are kept by what
they were compiled for, and a launch that meets one goes straight to the driver.

A form is compiled for the device, the constants, the types of the tensors, whether each of them begins at a multiple
of 16 bytes, and the kinds of the numbers. Triton would also look whether a whole number is 1 or a multiple of 16: a
kernel has to forbid that for each of its numbers (`do_not_specialize`).

Everything else is launched in Triton's ordinary way: kernels that do not forbid it, the interpreter's, those of a
Triton whose way of launching is not known here, numbers that need more than 32 bits, and all launches while someone
watches them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

KNOWN = ("3.6", "3.7", "3.8", "3.9")
"""Versions of Triton of which it was read how they start a compiled kernel."""
ALIGNED = 16
"""Bytes; Triton moves more at once where a tensor is known to begin at a multiple of them."""
FIRST_WIDE = 1 << 31
"""From here on a whole number takes 64 bits, and with it another form of the kernel."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel, compiled."""

    start: Callable[..., None]
    function: int
    about: object
    """What the driver has to know of it: its threads, its memory."""
    held: object
    """Only kept: when it is collected as garbage, the function is taken off the device."""


class Kernel:
    """A Triton kernel of this project. Its parameters are tensors, then numbers, then constants."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._forms: dict[tuple[object, ...], Form | None] = {}
        """None: such launches are ordinary ones."""
        self._is_plain = not _is_known(function)

    def __call__(
        self,
        grid: tuple[int, ...],
        tensors: Sequence[Tensor],
        numbers: tuple[int | float, ...],
        constants: tuple[int | bool, ...],
        *,
        warps: int = 4,
        stages: int = 3,
    ) -> None:
        if self._is_plain:
            self._launch_plainly(grid, tensors, numbers, constants, warps, stages)
            return
        starts = [tensor.data_ptr() for tensor in tensors]
        device = torch.cuda.current_device()
        key = device, *key_of(starts, tensors, numbers, constants, warps, stages)
        form = self._forms.get(key)
        if form is not None and not is_watched():
            columns = grid[1] if len(grid) > 1 else 1
            stream = torch._C._cuda_getCurrentRawStream(device)
            how = grid[0], columns, 1, stream, form.function, form.about, None, None, None
            try:
                form.start(*how, *starts, *numbers, *constants)
                return
            except (AttributeError, SystemError, TypeError):  # not understood, and so not started
                self._forms[key] = None
        compiled = self._launch_plainly(grid, tensors, numbers, constants, warps, stages)
        if key not in self._forms:
            self._forms[key] = self._form_of(compiled, len(tensors), numbers)

    def _launch_plainly(
        self,
        grid: tuple[int, ...],
        tensors: Sequence[Tensor],
        numbers: tuple[int | float, ...],
        constants: tuple[int | bool, ...],
        warps: int,
        stages: int,
    ) -> Any:
        """As Triton does it; gives the form that was launched, where Triton tells."""
        return self._function[grid](*tensors, *numbers, *constants, num_warps=warps, num_stages=stages)

    def _form_of(self, compiled: Any, num_tensors: int, numbers: tuple[int | float, ...]) -> Form | None:
        """None where it might be launched for arguments that it was not compiled for, or not be launched at all."""
        try:
            params = self._function.params[num_tensors : num_tensors + len(numbers)]
            for param, number in zip(params, numbers, strict=True):
                looked_at = isinstance(number, int) and not param.do_not_specialize
                if looked_at or param.is_constexpr or abs(number) >= FIRST_WIDE:
                    return None
            if compiled.metadata.target.backend != "cuda":  # others look at more than this module does
                return None
            return Form(compiled.run, compiled.function, compiled.packed_metadata, compiled)
        except (AttributeError, TypeError, ValueError):
            return None


def key_of(
    starts: Sequence[int],
    tensors: Sequence[Tensor],
    numbers: tuple[int | float, ...],
    constants: tuple[int | bool, ...],
    warps: int,
    stages: int,
) -> tuple[object, ...]:
    """What a form is compiled for, beside the device. Kinds are named since 1, 1.0 and True would be the same."""
    together = 0
    for start in starts:
        together |= start
    aligned = True if together % ALIGNED == 0 else tuple([start % ALIGNED == 0 for start in starts])
    return (
        aligned,
        tuple([tensor.dtype for tensor in tensors]),
        tuple([type(number) if abs(number) < FIRST_WIDE else None for number in numbers]),
        constants,
        tuple(map(type, constants)),
        warps,
        stages,
    )


def is_watched() -> bool:
    """Whether someone has asked Triton to be told of launches: ordinary ones do so."""
    runtime = _runtime()
    return runtime is None or _has_calls(runtime.launch_enter_hook) or _has_calls(runtime.launch_exit_hook)


def _has_calls(hook: Any) -> bool:
    return hook is not None and bool(getattr(hook, "calls", True))


@cache
def _runtime() -> Any | None:
    """Triton's settings at run time; None where they are not where they are looked for."""
    try:
        from triton import knobs  # type: ignore[import-not-found,unused-ignore]

        runtime = knobs.runtime
        return runtime if hasattr(runtime, "launch_enter_hook") and hasattr(runtime, "launch_exit_hook") else None
    except (ImportError, AttributeError):
        return None


def _is_known(function: Any) -> bool:
    """Whether a kernel is one to compile, and not to interpret, and its Triton and torch are as this module needs."""
    if type(function).__name__ != "JITFunction" or not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        return False
    try:
        import triton  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return False
    return ".".join(str(triton.__version__).split(".")[:2]) in KNOWN
