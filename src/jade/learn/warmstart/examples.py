"""Supervised examples: a prompt as a role sees it and what it should say. On disk, one JSON line each."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

from jade.backbone.chat import ChatFormat
from jade.errors import DocumentError
from jade.types import Prompt


@dataclass(frozen=True, slots=True)
class Example:
    """`origin` says where it comes from: a dataset, or the team's own traces."""

    prompt: Prompt
    reply: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class TokenExample:
    """An example as a policy reads it, by the same chat template as in sampling."""

    role: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Each line holds role, user part and reply; the system part is the team's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with gzip.open(partial, "wt", encoding="utf-8", compresslevel=6) as file:
        for example in examples:
            row = {"role": example.prompt.role, "user": example.prompt.user, "reply": example.reply}
            file.write(json.dumps(row | {"origin": example.origin}, ensure_ascii=False) + "\n")
    partial.replace(path)


def read_examples(path: Path, systems: Mapping[str, str]) -> Iterator[Example]:
    """The examples of a file, with the system parts of the team at hand."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield Example(Prompt(row["role"], systems[row["role"]], row["user"]), row["reply"], row["origin"])
    except (OSError, EOFError, json.JSONDecodeError, KeyError) as error:
        raise DocumentError(f"examples {path} cannot be read: {type(error).__name__}: {error}") from None


def distinct(examples: Iterable[Example]) -> list[Example]:
    """Every (prompt, reply) once, in the order of first sight."""
    return list({(example.prompt, example.reply): example for example in examples}.values())


def balanced(
    examples: Sequence[Example], per_role: int, repeat: int, own: Mapping[str, int] = MappingProxyType({})
) -> list[Example]:
    """No role of a dataset with too many examples, no role with too few; the order is kept, repeats come last."""
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for example in examples:
        kind = (example.prompt.role, example.origin)
        counts[kind] += 1
        limit = own.get(example.prompt.role, per_role)
        if not limit or counts[kind] <= limit:
            kept.append(example)
    by_role = count_by_role(kept)
    enough = median(by_role.values()) if by_role else 0
    times = {role: min(repeat, round(enough / count)) for role, count in by_role.items()}
    return kept + [each for each in kept for _ in range(times[each.prompt.role] - 1)]


def tokenise(examples: Sequence[Example], chat: ChatFormat, max_prompt_tokens: int) -> list[TokenExample]:
    """Prompts and replies as the ids that a sampler would have read and written."""
    rows = chat.encode_all([example.prompt for example in examples])
    return [
        TokenExample(
            example.prompt.role,
            chat.cut_to(example.prompt, ids, max_prompt_tokens).ids,
            chat.encode_reply(example.reply),
        )
        for example, ids in zip(examples, rows, strict=True)
    ]


def count_by_role(examples: Iterable[Example]) -> dict[str, int]:
    return dict(sorted(Counter(example.prompt.role for example in examples).items()))
