"""Where Triton's kernels are run in tests: by a GPU, or by its interpreter where that was asked for in time."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest
import torch

INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETS else "cpu")


def need_triton() -> None:
    if importlib.util.find_spec("triton") is None or not (INTERPRETS or DEVICE.type == "cuda"):
        pytest.skip("needs Triton, with its interpreter or a GPU")


def mend_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter holds bfloat16 as whole numbers of 16 bits, and would multiply those."""
    if not INTERPRETS:
        return
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
    from triton.runtime import interpreter  # type: ignore[import-not-found,unused-ignore]

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(wide, tl.float32)

    plain = interpreter.InterpreterBuilder.create_dot

    def dot(self: Any, one: Any, other: Any, *how: Any) -> Any:
        return plain(self, widened(one), widened(other), *how)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
