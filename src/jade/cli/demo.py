"""`jade demo`: a made-up country, its index, three questions. What `make demo` runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import ConfigFile, Effort, Model, Overrides, team_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jade.config import Config
    from jade.types import Question, Trace

PAGES, QUESTIONS = 300, 300
SHOWN = (("single", "one hop"), ("serial", "serial hops"), ("parallel", "parallel parts"))


def command(
    out: Annotated[Path, typer.Option(help="Where the world, its index and the traces go.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Another seed, another country.")] = 0,
    model: Model = None,
    effort: Effort = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Make a small world, index it and ask the team three questions."""
    import asyncio

    from jade.api.documents import index_documents
    from jade.corpus.world import check_place, make_world, write_world

    world_folder, index = out / "world", out / "index"
    check_place(world_folder)
    world = make_world(PAGES, QUESTIONS, seed)
    write_world(world, world_folder)
    _say(f"jade world --out {world_folder} --seed {seed}", f"{world.country}, a country that nobody has read about")
    report = index_documents([world_folder / "pages"], index)
    _say(f"jade index {world_folder / 'pages'} --out {index}", f"{report.manifest.counts['passages']} passages")
    chosen = team_from(config, settings, index=str(index), model=model, effort=effort)
    questions = [next(q for q in world.test if q.metadata["kind"] == kind) for kind, _ in SHOWN]
    (out / "traces.jsonl").unlink(missing_ok=True)
    asyncio.run(_ask_all(questions, chosen, index, out / "traces.jsonl"))


async def _ask_all(questions: Sequence[Question], config: Config, index: Path, traces: Path) -> None:
    from jade.engine.effort import effort_of
    from jade.engine.record import append_traces
    from jade.engine.solve import solve
    from jade.screen.terminal import open_screen
    from jade.screen.tree import LiveTree
    from jade.team.crew import open_crew

    async with open_crew(config) as crew:
        for question, (_, title) in zip(questions, SHOWN, strict=True):
            _say(f'jade ask "{question.text}" --index {index}', title)
            with LiveTree(open_screen(stderr=True)) as tree:
                trace = await solve(question, crew, effort=effort_of(config.reward), listen=tree.hear)
            append_traces(traces, [trace])
            _show(trace)
    _say(f"jade trace show {traces}", "the same traces again")


def _show(trace: Trace) -> None:
    from jade.reward.metrics import f1
    from jade.screen.answer import print_answer
    from jade.screen.terminal import foreign, open_screen

    print_answer(trace)
    right = f1(trace.answer, trace.question.answers) > 0.5
    gold = foreign(f"Gold answer: {trace.question.answers[0]}  ", "bold")
    open_screen().print(gold + foreign("right" if right else "wrong", "green" if right else "red"))


def _say(command: str, remark: str) -> None:
    from jade.screen.terminal import foreign, open_screen

    console = open_screen()
    console.print()
    console.print(foreign("$ ", "dim") + foreign(command, "bold cyan"), soft_wrap=True)
    console.print(foreign(f"# {remark}", "dim"))
