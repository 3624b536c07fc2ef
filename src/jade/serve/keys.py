"""API keys: read once, kept as digests, compared in constant time, never printed.

Whoever can be reached from outside must have keys; that is checked before the server starts.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from jade.config import ServeConfig
from jade.config.serve import is_loopback
from jade.errors import ConfigError

MIN_KEY_CHARS = 16
ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class Keyring:
    """Digests of the keys, by the name of their holder."""

    digests: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.digests)

    def holder(self, key: str) -> str | None:
        """Whose key this is. Every known key is compared, so that the time taken says nothing."""
        digest = _digest(key)
        matches = [name for name, known in self.digests.items() if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None


def read_keys(config: ServeConfig) -> Keyring:
    """The keys of the file and of the environment together."""
    digests: dict[str, bytes] = {}
    for number, (name, key) in enumerate([*_keys_in_file(config), *_keys_in_environment(config)], start=1):
        if len(key) < MIN_KEY_CHARS:
            raise ConfigError(f"API key {number} has {len(key)} characters: use at least {MIN_KEY_CHARS}")
        holder = name or f"key{number}"
        if holder in digests:
            raise ConfigError(f"API key {number}: the name {holder!r} is taken, give each key its own")
        digests[holder] = _digest(key)
    return Keyring(digests)


def check_exposure(host: str, keys: Keyring) -> None:
    """Refuse to listen where others can reach without asking them for a key."""
    if not is_loopback(host) and not keys:
        raise ConfigError(
            f"serve.host {host!r} can be reached by others and no API key is set: "
            "give --keys FILE or the environment variable JADE_API_KEYS, or listen on 127.0.0.1"
        )


def _keys_in_file(config: ServeConfig) -> Iterator[tuple[str, str]]:
    if config.keys_file is None:
        return
    try:
        lines = config.keys_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"serve.keys_file {config.keys_file} cannot be read: {error}") from None
    found = list(_named(line for line in lines if line.strip() and not line.lstrip().startswith("#")))
    if not found:
        raise ConfigError(f"serve.keys_file {config.keys_file} holds no key")
    yield from found


def _named(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        *name, key = line.split()
        yield " ".join(name), key


def _keys_in_environment(config: ServeConfig) -> Iterator[tuple[str, str]]:
    for key in os.environ.get(config.keys_env, "").split(","):
        if key.strip():
            yield "", key.strip()


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
