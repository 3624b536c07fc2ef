"""Questions to learn from: read, checked against what must not be learned, and drawn in an order that a seed fixes.

What is drawn for an iteration is a function of the seed and the iteration alone, so a resumed run needs no memory of
what came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from jade.corpus.questions import numbered_questions
from jade.engine.seeds import derive_seed
from jade.errors import ConfigError
from jade.reward.metrics import normalise
from jade.types import Question

WHOLE = (0.0, 1.0)


def read_question_file(path: Path) -> list[Question]:
    """All questions of a JSONL file in FlashRAG's fields; the dataset is the file's first name (`nq.train.jsonl`)."""
    name = path.name.split(".")[0]
    dataset = "world" if name == "questions" else name
    return [question for _, question in numbered_questions(path, dataset)]


def read_question_files(
    setting: str, paths: Sequence[Path], per_file: int = 0, part: tuple[float, float] = WHOLE
) -> list[list[Question]]:
    """The questions of several files, at most `per_file` of that part; a missing file is the setting's fault, as is one
    of which the part holds nothing."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise ConfigError(f"{setting}: {missing[0]} does not exist")
    files = [[q for q in read_question_file(path) if is_in_part(q, part)] for path in paths]
    for path, questions in zip(paths, files, strict=True):
        if not questions:
            section = setting.rpartition(".")[0]
            raise ConfigError(
                f"{section}.part: [{part[0]:g}, {part[1]:g}] holds no question of {path}; take a larger part, "
                f"or leave the file out of {setting}"
            )
    return [questions[: per_file or None] for questions in files]


def is_in_part(question: Question, part: tuple[float, float]) -> bool:
    """Whether a question belongs to the part, wherever in its file it stands and whatever else the file holds."""
    start, end = part
    # A seed has 63 bits: this is where it stands between none and all of them.
    return start <= derive_seed("part", question.id) / 2**63 < end


def check_apart(setting: str, trained: Sequence[Question], kept: Sequence[Question], kept_setting: str) -> None:
    """No question that is kept for measuring may be trained on, whatever its id or its spelling."""
    held = {(question.dataset, question.id) for question in kept}
    texts = {normalise(question.text) for question in kept}
    for question in trained:
        if (question.dataset, question.id) in held or normalise(question.text) in texts:
            raise ConfigError(
                f"{setting}: question {question.id} of {question.dataset} ({question.text[:60]!r}) "
                f"also stands in {kept_setting}; nothing may be trained on that is measured on"
            )


@dataclass(frozen=True)
class QuestionStream:
    """Endless passes over the questions, each in an order of its own; `balance` draws evenly from the files."""

    files: Sequence[Sequence[Question]]
    seed: int
    balance: bool = False

    def draw(self, iteration: int, count: int) -> list[Question]:
        """The questions of one iteration."""
        places = range(iteration * count, (iteration + 1) * count)
        if not self.balance:
            pool = [question for file in self.files for question in file]
            return [self._at(pool, "all", place) for place in places]
        num_files = len(self.files)
        return [self._at(self.files[p % num_files], str(p % num_files), p // num_files) for p in places]

    def _at(self, pool: Sequence[Question], name: str, place: int) -> Question:
        epoch, position = divmod(place, len(pool))
        return pool[shuffled(len(pool), derive_seed(self.seed, "order", name, epoch))[position]]


@lru_cache(maxsize=32)
def shuffled(count: int, seed: int) -> tuple[int, ...]:
    """The numbers below `count` in an order that the seed fixes."""
    return tuple(np.random.default_rng(seed).permutation(count).tolist())
