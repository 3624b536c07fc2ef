"""Run every benchmark that needs no GPU, one after the other, and say which failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = ("startup.py", "engine.py", "bm25.py", "local_backbone.py", "serve.py")


def main() -> int:
    failed = []
    for script in SCRIPTS:
        print(f"\n== {script}", flush=True)
        if subprocess.run([sys.executable, str(HERE / script), *sys.argv[1:]]).returncode:
            failed.append(script)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
