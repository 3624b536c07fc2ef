"""What one method did on one benchmark: its questions with their scores, costs and plans.

Several runs of the same thing (seeds) are one cell: a question's score is its mean over the runs, and only questions
that all of them have count. So whatever is resampled later is a question, never a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jade.evaluate.record import Record
from jade.evaluate.statistics import Floats
from jade.evaluate.store import Cell, CellFiles, Timing, read_records, read_timings
from jade.reward.metrics import is_yes_no
from jade.reward.selection import Kept, added_up


@dataclass(frozen=True)
class Finished:
    """What one run has of a cell."""

    files: CellFiles
    records: Sequence[Record]
    timings: Sequence[Timing]

    @property
    def wall_seconds(self) -> float:
        """The time in which the cell was being worked, all its sessions together."""
        sessions: dict[int, list[Timing]] = {}
        for timing in self.timings:
            sessions.setdefault(timing.session, []).append(timing)
        return sum(max(t.ended for t in each) - min(t.began for t in each) for each in sessions.values())


def read_finished(files: CellFiles) -> Finished:
    """The finished questions of a cell; there is a timing for each of them."""
    records = list(read_records(files.records))
    return Finished(files, records, list(read_timings(files.timings))[: len(records)])


@dataclass(frozen=True)
class CellResult:
    """What one method did on one benchmark, in one run or in several that are pooled."""

    cell: Cell
    runs: Sequence[Finished]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The questions that every run has, in the order of the first."""
        others = [{(record.id, record.question) for record in run.records} for run in self.runs[1:]]
        first = self.runs[0].records
        return tuple(record.id for record in first if all((record.id, record.question) in each for each in others))

    @cached_property
    def records(self) -> Sequence[Record]:
        """Those of these questions, one from each run."""
        shared = set(self.ids)
        return [record for run in self.runs for record in run.records if record.id in shared]

    def scores(self, name: str) -> Floats:
        """A score for each of `ids`: its mean over the runs."""
        place = {id_: number for number, id_ in enumerate(self.ids)}
        total_N = np.zeros(len(place))
        # Not `total_N[...] +=`, which counts a place once however often it is named: every run names it.
        np.add.at(total_N, [place[r.id] for r in self.records], [r.scores[name] for r in self.records])
        return total_N / len(self.runs)

    @cached_property
    def f1(self) -> dict[tuple[str, str], float]:
        """F1 by question: by its id and its text, since files of one name number other questions alike."""
        text = {record.id: record.question for record in self.runs[0].records}
        return {(id_, text[id_]): score for id_, score in zip(self.ids, self.scores("f1").tolist(), strict=True)}

    def f1_of_run(self, place: int) -> float:
        """Mean F1 of one of the runs, on the questions that all have."""
        shared = set(self.ids)
        return float(np.mean([r.scores["f1"] for r in self.runs[place].records if r.id in shared]))

    def cost(self, name: str) -> float:
        return float(np.mean([record.cost[name] for record in self.records]))

    @property
    def tokens(self) -> float:
        return self.cost("prompt_tokens") + self.cost("completion_tokens")

    @property
    def seconds(self) -> float:
        """Mean time from a question to its answer, among all that were in flight with it."""
        return float(np.mean([timing.seconds for run in self.runs for timing in run.timings]))

    @property
    def questions_per_second(self) -> float:
        """Questions over the time in which they were being worked."""
        num_questions = sum(len(run.timings) for run in self.runs)
        return num_questions / max(sum(run.wall_seconds for run in self.runs), 1e-9)

    @property
    def failed(self) -> float:
        """Share of questions that ended in an error."""
        return float(np.mean([record.error is not None for record in self.records]))

    def answer_recall(self, k: int) -> float | None:
        """Share of questions for which a search had a passage with the answer among its first k.

        Of those whose answer can stand in a passage: yes and no cannot.
        """
        ranks = [record.answer_rank for record in self.records if not is_yes_no(record.golds)]
        return float(np.mean([rank is not None and rank <= k for rank in ranks])) if ranks else None

    @property
    def title_recall(self) -> float | None:
        """Mean share of supporting pages found, over the questions that name some."""
        known = [record.title_recall for record in self.records if record.title_recall is not None]
        return float(np.mean(known)) if known else None

    @cached_property
    def selection(self) -> Kept:
        return added_up(Kept(**record.selection) for record in self.records if record.selection)

    @property
    def depth(self) -> float:
        return float(np.mean([record.depth for record in self.records]))

    @property
    def stopped(self) -> float:
        """Share of questions whose budget was spent early."""
        return float(np.mean([bool(record.stopped) for record in self.records]))

    def shares(self, name: str) -> dict[str, float]:
        """How the questions divide by `workflow` or `failure`, the largest first."""
        counts = Counter(getattr(record, name) or "none" for record in self.records)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {value: count / len(self.records) for value, count in ordered}

    def malformed(self) -> dict[str, tuple[int, int]]:
        """By role: outputs that could not be read, and all outputs."""
        broken: Counter[str] = Counter()
        written: Counter[str] = Counter()
        for record in self.records:
            for role, (bad, count) in record.malformed.items():
                broken[role] += bad
                written[role] += count
        return {role: (broken[role], written[role]) for role in sorted(written)}
