"""Question files from the Hugging Face hub, where there is a network and `huggingface_hub` is installed.

A file is downloaded once into the hub's own cache; nothing of a repository is ever executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jade.errors import DocumentError

HUB_PREFIX = "hub:"
DEFAULT_REPOSITORY = "RUC-NLPIR/FlashRAG_datasets"


def fetch(
    repository: str, candidates: Sequence[str], *, endpoint: str | None = None, cache: Path | None = None
) -> Path:
    """The first of the candidate files that a dataset repository holds, as a local path.

    `endpoint` and `cache` stand in for the hub's own settings (HF_ENDPOINT, HF_HOME), which are read only once.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise DocumentError("reading from the hub needs huggingface_hub: pip install huggingface_hub") from None
    name = repository or DEFAULT_REPOSITORY
    for path in candidates:
        try:
            return Path(hub.hf_hub_download(name, path, repo_type="dataset", endpoint=endpoint, cache_dir=cache))
        except RepositoryNotFoundError:
            raise DocumentError(f"the hub has no dataset repository {name!r} (or it is private)") from None
        except EntryNotFoundError as error:
            if isinstance(error, hub.errors.LocalEntryNotFoundError):
                raise _unreachable(name, error) from None
        except Exception as error:  # whatever the network and its libraries raise is one line to the user
            raise _unreachable(name, error) from None
    raise DocumentError(f"dataset repository {name!r} has none of {', '.join(candidates)}")


def _unreachable(name: str, error: Exception) -> DocumentError:
    reason = " ".join(str(error).split())[:200]
    return DocumentError(f"cannot reach {name!r} on the hub ({reason}): download it and give the folder instead")
