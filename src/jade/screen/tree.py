"""A trace as a tree in the terminal: finished, or growing while the team works.

Everything the team read or wrote goes through `foreign`, so that brackets in a document are brackets on the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from jade.engine.events import Event, NodeOpened, NodeSolved, StepBegan, StepEnded
from jade.screen.terminal import foreign
from jade.types import (
    Action,
    Answer,
    Malformed,
    Node,
    Note,
    Query,
    Selection,
    Step,
    SubQuestions,
    Trace,
    Workflow,
)

COLOURS = {
    "P": "magenta",
    "QDS": "blue",
    "QDP": "blue",
    "QR": "cyan",
    "R": "yellow",
    "DS": "green",
    "AG": "bold green",
    "AS": "bold green",
}
_MAX_CHARS = 160


def render_trace(trace: Trace, *, outputs: bool = False) -> Tree:
    """The whole tree; `outputs` adds each step's raw text."""
    growing = GrowingTree()
    for node in trace.nodes:
        growing.nodes[node.id] = node
    for step in trace.steps:
        growing.ended(step)
    return growing.render(outputs=outputs)


@dataclass
class GrowingTree:
    """What is known so far of a question in work; a listener of the engine."""

    nodes: dict[str, Node] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    busy: dict[str, StepBegan] = field(default_factory=dict)

    def hear(self, event: Event) -> None:
        match event:
            case NodeOpened(node) | NodeSolved(node):
                self.nodes[node.id] = node
            case StepBegan():
                self.busy[event.id] = event
            case StepEnded(step):
                self.ended(step)

    def ended(self, step: Step) -> None:
        self.busy.pop(step.id, None)
        self.steps.setdefault(step.node, []).append(step)

    def render(self, *, outputs: bool = False) -> Tree:
        return self._branch(self.nodes["0"], outputs) if "0" in self.nodes else Tree("…")

    def _branch(self, node: Node, outputs: bool) -> Tree:
        tree = Tree(_headline(node))
        steps = self.steps.get(node.id, [])
        before = [step for step in steps if not _closes(step)]
        for step in before:
            tree.add(_leaf(step, outputs))
        # Of copies: the display draws in a thread of its own while the team goes on.
        for child in (n for n in list(self.nodes.values()) if n.parent == node.id):
            tree.add(self._branch(child, outputs))
        for step in steps[len(before) :]:
            tree.add(_leaf(step, outputs))
        for began in [b for b in list(self.busy.values()) if b.node == node.id]:
            tree.add(Spinner("dots", text=foreign(f" {began.role} …", COLOURS.get(began.role, "white"))))
        return tree


def _closes(step: Step) -> bool:
    return step.role == "AS"


def _headline(node: Node) -> Text:
    line = foreign(f"{node.id} ", "dim") + foreign(clip(node.question), "bold")
    return line + foreign(f"  → {clip(node.answer)}", "bold green") if node.answer else line


def _leaf(step: Step, outputs: bool) -> RenderableType:
    line = foreign(f"{step.role:<3} ", COLOURS.get(step.role, "white")) + foreign(summary(step)) + _cost(step)
    if outputs and step.generation:
        return Group(line, foreign(step.generation.text, "dim"))
    return line


def _cost(step: Step) -> Text:
    tokens = f"{step.generation.completion_tokens} tokens, " if step.generation else ""
    num_cut = step.generation.prompt_cut if step.generation else 0
    cut = f"prompt cut by {num_cut} tokens, " if num_cut else ""
    return foreign(f"  ({tokens}{cut}{step.seconds:.2f} s)", "dim")


def summary(step: Step) -> str:
    """One line on what a step did."""
    if step.error:
        return f"failed: {clip(step.error)}"
    if step.generation is None and step.applied is None:
        titles = ", ".join(passage.title or passage.id for passage in step.found)
        return f"{clip(step.observation.question, 60)} → {len(step.found)} passages: {clip(titles, 90)}"
    if isinstance(step.action, Malformed):
        ran = f", ran {describe(step.applied)}" if step.applied else ""
        return f"malformed ({step.action.reason}){ran}"
    return describe(step.applied)


_DESCRIPTIONS: dict[type, Callable[..., str]] = {
    Workflow: str,
    SubQuestions: lambda action: " | ".join(action.questions),
    Query: lambda action: action.text,
    Selection: lambda action: ", ".join(f"Document{index}" for index in action.indices) or "none",
    Answer: lambda action: action.text,
    Note: lambda action: action.text,
}


def describe(action: Action | None) -> str:
    return (clip(_DESCRIPTIONS[type(action)](action)) if action is not None else "") or "nothing"


def clip(text: str | None, max_chars: int = _MAX_CHARS) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


class LiveTree:
    """Shows the tree as it grows on a terminal; elsewhere one plain line for each finished step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tree = GrowingTree()
        self._live = Live(console=console, get_renderable=self._tree.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveTree:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def hear(self, event: Event) -> None:
        self._tree.hear(event)
        if isinstance(event, StepEnded) and not self._console.is_terminal:
            self._console.print(foreign(f"{event.step.node} {event.step.role} {summary(event.step)}"), soft_wrap=True)
