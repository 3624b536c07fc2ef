"""The workflow of `engine.py` as a LangGraph: one node a role, compiled once, no checkpointer, all asynchronous.

Prompts and parsers are the team's own, so that both sides do the same work in each call; the steps taken are kept in
the state, as a trace keeps them.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found,unused-ignore]

from jade.backbone.base import Backbone
from jade.retrieval.base import Retriever
from jade.team.team import Team
from jade.types import Known, Observation, Passage, Question, Sampling


class State(TypedDict):
    """What travels between the nodes; `pending` holds the sub-questions still to be asked."""

    root: str
    question: str
    pending: tuple[str, ...]
    known: tuple[Known, ...]
    query: str
    passages: tuple[Passage, ...]
    plan: str
    answer: str
    steps: Annotated[list[Any], operator.add]


Update = dict[str, Any]


class Nodes:
    """One asynchronous function a role; each returns what it changes."""

    def __init__(self, team: Team, model: Backbone, shelf: Retriever) -> None:
        self._team = team
        self._model = model
        self._shelf = shelf
        self._legal = team.legal(child=False).codes
        self._sampling = Sampling()

    async def _call(self, code: str, seen: Observation) -> tuple[Any, tuple[Any, ...]]:
        generation = await self._model.generate(self._team.render(code, seen), self._sampling)
        action = self._team.role(code).parse(generation.text, seen)
        return action, (code, seen, generation, action)

    async def plan(self, state: State) -> Update:
        action, step = await self._call("P", Observation(state["question"], state["known"], legal=self._legal))
        return {"plan": str(action), "steps": [step]}

    async def split(self, state: State) -> Update:
        action, step = await self._call("QDS", Observation(state["question"]))
        first, *rest = action.questions
        return {"question": first, "pending": tuple(rest), "steps": [step]}

    async def rewrite(self, state: State) -> Update:
        action, step = await self._call("QR", Observation(state["question"], state["known"]))
        return {"query": action.text, "steps": [step]}

    async def retrieve(self, state: State) -> Update:
        (found,) = await self._shelf.search([state["query"]], 5)
        return {"passages": tuple(found), "steps": [("R", state["query"], tuple(found))]}

    async def select(self, state: State) -> Update:
        shown = state["passages"]
        action, step = await self._call("DS", Observation(state["question"], passages=shown))
        return {"passages": tuple(shown[index] for index in action.indices), "steps": [step]}

    async def answer(self, state: State) -> Update:
        action, step = await self._call("AG", Observation(state["question"], passages=state["passages"]))
        known = (*state["known"], Known(state["question"], action.text))
        update: Update = {"known": known, "answer": action.text, "steps": [step]}
        if state["pending"]:
            update["question"] = state["pending"][0].replace("#1", action.text)
        return update | {"pending": state["pending"][1:], "plan": "next" if state["pending"] else "done"}

    async def summarise(self, state: State) -> Update:
        action, step = await self._call("AS", Observation(state["root"], state["known"]))
        return {"answer": action.text, "steps": [step]}


def build_graph(team: Team, model: Backbone, shelf: Retriever) -> Callable[[Question], Awaitable[str]]:
    nodes = Nodes(team, model, shelf)
    graph = StateGraph(State)
    for node in (nodes.plan, nodes.split, nodes.rewrite, nodes.retrieve, nodes.select, nodes.answer, nodes.summarise):
        graph.add_node(f"do_{node.__name__}", node)
    graph.add_edge(START, "do_plan")
    graph.add_conditional_edges(
        "do_plan",
        lambda state: "split" if state["plan"] == "QDS" else "solve",
        {"split": "do_split", "solve": "do_rewrite"},
    )
    graph.add_edge("do_split", "do_plan")
    graph.add_edge("do_rewrite", "do_retrieve")
    graph.add_edge("do_retrieve", "do_select")
    graph.add_edge("do_select", "do_answer")
    graph.add_conditional_edges("do_answer", lambda state: state["plan"], {"next": "do_plan", "done": "do_summarise"})
    graph.add_edge("do_summarise", END)
    compiled = graph.compile()

    async def ask(question: Question) -> str:
        start = State(
            root=question.text,
            question=question.text,
            pending=(),
            known=(),
            query="",
            passages=(),
            plan="",
            answer="",
            steps=[],
        )
        final = await compiled.ainvoke(start, {"recursion_limit": 50})
        assert len(final["steps"]) == 13
        return str(final["answer"])

    return ask
