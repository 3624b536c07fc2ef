"""How long `jade --help` takes, beside an empty Python, and that it imports no torch."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

REPEATS = 9


def seconds(*arguments: str) -> float:
    """Median wall-clock of a command."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    check = "import sys, jade.cli.main; print('torch' in sys.modules)"
    imports_torch = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    figures = {
        "python_pass_seconds": round(seconds("-c", "pass"), 4),
        "jade_help_seconds": round(seconds("-m", "jade", "--help"), 4),
        "imports_torch": imports_torch.strip() == "True",
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
