"""Fixtures shared by all tests. Generated examples are the same in every run, and a busy machine fails no test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx._config
import pytest
from hypothesis import HealthCheck, Phase, settings

from patience import PATIENCE_SECONDS

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    max_examples=60,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # without explaining, which takes minutes when one fails
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

for limit in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, limit, PATIENCE_SECONDS)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; its processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def forget_modules(tmp_path: Path) -> Iterator[None]:
    """For tests that import code of their own: it is gone again afterwards. Only what the test wrote: a library that
    happens to be imported there first, as numpy, can be loaded only once."""
    yield
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(vars(module).get("__file__")):
            del sys.modules[name]


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder of real benchmark questions and corpora; tests that want it skip where it is absent."""
    folder = Path(os.environ.get("JADE_BENCHMARK_DATA", "../shared/data")).resolve()
    if not (folder / "corpus_main.jsonl.gz").is_file():
        pytest.skip(f"no benchmark data in {folder}; set JADE_BENCHMARK_DATA to its folder")
    return folder
