"""Packages that not everyone needs, by the extra that brings them."""

from __future__ import annotations

EXTRAS: dict[str, tuple[str, ...]] = {
    "local": ("torch", "transformers", "peft", "safetensors", "gguf", "llguidance"),
    "dense": ("sentence_transformers", "faiss"),
    "serve": ("mcp",),
    "ray": ("ray",),
    "verl": ("pyarrow",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
}

PURPOSES: dict[str, str] = {
    "local": "models in this process",
    "dense": "search by meaning",
    "serve": "jade mcp",
    "ray": "several machines",
    "verl": "jade export-verl",
    "tensorboard": "TensorBoard",
    "trackio": "trackio",
}
"""What each extra is for, in few words."""


def extra_of(package: str) -> str | None:
    """The extra that brings a package, as it is imported."""
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def how_to_get(extra: str) -> str:
    return f"pip install 'jade-team[{extra}]'"
