"""The nouns of JADE: values that travel between the rooms.

Everything here is frozen and knows nothing of models, indexes or files. A question is worked into a
trace; the trainable steps of a trace become transitions; a transition carries what was sampled, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

TRACE_SCHEMA = 1
"""Version of the trace as written to disk; raised when a reader of the old form would misread the new one. A new field
with a default needs no new version: old files lack it, and old readers pass over it."""


class Role(StrEnum):
    """The built-in roles. A role is named by its code everywhere, so a user's own role is just another string."""

    PLANNER = "P"
    SERIAL = "QDS"
    PARALLEL = "QDP"
    REWRITER = "QR"
    RETRIEVAL = "R"
    SELECTOR = "DS"
    ANSWERER = "AG"
    SUMMARISER = "AS"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with its gold answers where they are known."""

    id: str
    text: str
    answers: tuple[str, ...] = ()
    dataset: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    """Earlier turns of a conversation, oldest first; the rewriter may use them."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from every other. An id alone does not: datasets number their questions alike, and two files of
        one name are one dataset."""
        return self.dataset, self.id, self.text


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. `source` is the file and position it was cut from."""

    id: str
    title: str
    text: str
    source: str = ""
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a backbone is asked: a role's fixed instruction and this step's observation, rendered."""

    role: str
    system: str
    user: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a backbone draws its tokens. The same seed gives the same draw whatever else is in the batch."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 128
    seed: int = 0
    choices: tuple[str, ...] = ()
    """Non-empty: the output must be one of these texts (constrained decoding, inference only)."""


Finish: TypeAlias = Literal["stop", "length", "error"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One output of a backbone. Ids and log-probs are those of the sampling itself, never re-tokenised.

    `token_ids` includes the end-of-turn token when one was sampled; both tuples are empty when the
    backbone cannot give them (a remote server without token ids), and such a step cannot be trained.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: Finish = "stop"
    policy_version: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_cut: int = 0
    """Tokens of the prompt that had no room and were left out of what the model read."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """The planner's action: the modules to run, in order."""

    modules: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.modules)


@dataclass(frozen=True, slots=True)
class SubQuestions:
    """A decomposer's action."""

    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """The rewriter's action: what to search for."""

    text: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The selector's action: positions in the passages it was shown. Empty means none is useful."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer generator's and the summariser's action."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """The action of a role from outside the package: free text, kept in the working memory under its code."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """What a parser could not accept, and why. A value, never an exception."""

    reason: str


Action: TypeAlias = Workflow | SubQuestions | Query | Selection | Answer | Note


@dataclass(frozen=True, slots=True)
class Effort:
    """The prices in force for one question: of a turn (alpha) and of a retrieval (beta)."""

    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class Known:
    """A sub-question that has been answered."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What one role sees in one step. Which fields are filled depends on the role's row in the team table."""

    question: str
    known: tuple[Known, ...] = ()
    passages: tuple[Passage, ...] = ()
    context: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    legal: tuple[str, ...] = ()
    """The workflows the planner may choose from here, printed; empty for every other role."""
    effort: Effort | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One act of one role, or one use of a tool, as it happened."""

    id: str
    node: str
    round: int
    role: str
    observation: Observation
    generation: Generation | None = None
    action: Action | Malformed | None = None
    applied: Action | None = None
    """What ran in the end: the action, or the role's stated fallback when the action is malformed."""
    found: tuple[Passage, ...] = ()
    """What a tool brought (retrieval's passages)."""
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A question of the trace. Ids are paths: the root is "0", its second child "0.2"."""

    id: str
    parent: str | None
    question: str
    """As it was worked, with the answers of earlier siblings filled in."""
    written: str
    """As the decomposer wrote it (`#1` stands for the first sibling's answer)."""
    answer: str | None = None
    children: tuple[str, ...] = ()
    workflow: str = ""
    """What ran, printed: a decomposition's code or the solving modules."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that a node's answer rests on."""

    number: int
    node: str
    passage: Passage
    holds_answer: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What a question cost."""

    calls: int = 0
    rounds: int = 0
    retrievals: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything the team did for one question, in the order of the tree (a parent, its children, its summary)."""

    id: str
    question: Question
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    answer: str
    citations: tuple[Citation, ...] = ()
    usage: Usage = Usage()
    stopped: str = ""
    """The budget that was spent before all was solved ("rounds", "tokens", …); empty when none was."""
    error: str | None = None
    seed: int = 0
    effort: Effort | None = None
    supported: bool = False
    """Whether a cited passage holds the answer (for yes/no: whether anything is cited at all)."""
    outcome: float | None = None
    """What the answer is worth, where it was measured otherwise than by F1 (`reward.outcome`)."""
    schema: int = TRACE_SCHEMA


@dataclass(frozen=True, slots=True)
class Reward:
    """What one step earned. `outcome` and `cost` are the team's, `format` is this step's own."""

    outcome: float = 0.0
    cost: float = 0.0
    format: float = 0.0

    @property
    def team(self) -> float:
        """What all steps of the trace share."""
        return self.outcome - self.cost

    @property
    def total(self) -> float:
        return self.team + self.format


@dataclass(frozen=True, slots=True)
class Transition:
    """One trainable decision: what was seen and written, what it earned. `advantage` is filled by a credit rule."""

    trace: str
    step: str
    role: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: Reward
    policy_version: int = 0
    group: str = ""
    """Transitions of rollouts of the same question at the same prices share a group."""
    advantage: float = 0.0
