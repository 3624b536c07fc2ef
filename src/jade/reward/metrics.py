"""Answer metrics with SQuAD's normalisation: each takes a prediction and its gold answers and gives 0 to 1.

Several golds take the best one, so their order never matters; a plain text is one gold. A blank prediction scores 0
everywhere, also where a gold answer consists of articles alone and normalises to nothing: no answer is never a right
answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=65536)
def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and superfluous white space, in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, golds: str | Sequence[str]) -> float:
    """1 when the normalised texts are the same."""
    return _best(lambda said, gold: float(said == gold), prediction, golds)


def f1(prediction: str, golds: str | Sequence[str]) -> float:
    """Harmonic mean of precision and recall over the bags of words."""
    return _best(
        lambda said, gold: _ratio(said, gold, len(said.split()) + len(gold.split()), weight=2), prediction, golds
    )


def precision(prediction: str, golds: str | Sequence[str]) -> float:
    """Share of the prediction's words that are gold."""
    return _best(lambda said, gold: _ratio(said, gold, len(said.split())), prediction, golds)


def recall(prediction: str, golds: str | Sequence[str]) -> float:
    """Share of the gold words that were said."""
    return _best(lambda said, gold: _ratio(said, gold, len(gold.split())), prediction, golds)


def accuracy(prediction: str, golds: str | Sequence[str]) -> float:
    """1 when the prediction contains a gold answer, word for word ("no" is not in "november")."""
    return _best(lambda said, gold: float(contains(said, gold)), prediction, golds)


def contains(text: str, phrase: str) -> bool:
    """Whether the normalised phrase stands in the normalised text as whole words; an empty phrase only in itself."""
    text, phrase = normalise(text), normalise(phrase)
    return f" {phrase} " in f" {text} " if phrase else not text


def is_yes_no(golds: Sequence[str]) -> bool:
    """Whether the question is to be answered by yes or no, and nothing else."""
    return bool(golds) and all(normalise(gold) in ("yes", "no") for gold in golds)


def _best(score: Callable[[str, str], float], prediction: str, golds: str | Sequence[str]) -> float:
    if not prediction.strip():
        return 0.0
    said = normalise(prediction)
    each = (golds,) if isinstance(golds, str) else golds
    return max((score(said, normalise(gold)) for gold in each), default=0.0)


def _ratio(said: str, gold: str, whole: int, weight: int = 1) -> float:
    """Shared words over `whole`; where one side has no words left, only two empty sides agree."""
    if not said or not gold:
        return float(said == gold)
    return weight * sum((Counter(said.split()) & Counter(gold.split())).values()) / whole
