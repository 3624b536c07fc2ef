"""Generated traces: every field that a trace has, filled with anything its type allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jade.types import (
    Answer,
    Citation,
    Effort,
    Generation,
    Known,
    Malformed,
    Node,
    Note,
    Observation,
    Passage,
    Query,
    Question,
    Selection,
    Step,
    SubQuestions,
    Trace,
    Usage,
    Workflow,
)

TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "a\udfffb", "\x00", "\u2028\x85", "\r\n", "#1", "<|im_end|>"])
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 10**6)


def some(each: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(each, max_size=3).map(tuple)


TEXTS = some(TEXT)
JSON = st.recursive(
    st.none() | st.booleans() | COUNT | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
QUESTIONS = st.builds(Question, TEXT, TEXT, TEXTS, TEXT, st.dictionaries(TEXT, JSON, max_size=2), TEXTS)
PASSAGES = st.builds(Passage, TEXT, TEXT, TEXT, TEXT, FLOAT)
EFFORTS = st.none() | st.builds(Effort, FLOAT, FLOAT)
ACTIONS = st.one_of(
    st.builds(Workflow, TEXTS),
    st.builds(SubQuestions, TEXTS),
    st.builds(Query, TEXT),
    st.builds(Selection, some(COUNT)),
    st.builds(Answer, TEXT),
    st.builds(Note, TEXT),
)
GENERATIONS = st.builds(
    Generation,
    text=TEXT,
    prompt_ids=some(COUNT),
    token_ids=some(COUNT),
    logprobs=some(FLOAT),
    finish=st.sampled_from(["stop", "length", "error"]),
    policy_version=COUNT,
    seconds=FLOAT,
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    prompt_cut=COUNT,
)
OBSERVATIONS = st.builds(
    Observation,
    question=TEXT,
    known=some(st.builds(Known, TEXT, TEXT)),
    passages=some(PASSAGES),
    context=TEXTS,
    notes=some(st.tuples(TEXT, TEXT)),
    legal=TEXTS,
    effort=EFFORTS,
)
STEPS = st.builds(
    Step,
    id=TEXT,
    node=TEXT,
    round=COUNT,
    role=TEXT,
    observation=OBSERVATIONS,
    generation=st.none() | GENERATIONS,
    action=st.none() | ACTIONS | st.builds(Malformed, TEXT),
    applied=st.none() | ACTIONS,
    found=some(PASSAGES),
    error=st.none() | TEXT,
    seconds=FLOAT,
)
NODES = st.builds(Node, TEXT, st.none() | TEXT, TEXT, TEXT, st.none() | TEXT, TEXTS, TEXT)
TRACES = st.builds(
    Trace,
    id=TEXT,
    question=QUESTIONS,
    nodes=some(NODES),
    steps=some(STEPS),
    answer=TEXT,
    citations=some(st.builds(Citation, COUNT, TEXT, PASSAGES, st.booleans())),
    usage=st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT, FLOAT),
    stopped=TEXT,
    error=st.none() | TEXT,
    seed=st.integers(0, 2**63 - 1),
    effort=EFFORTS,
    supported=st.booleans(),
)
