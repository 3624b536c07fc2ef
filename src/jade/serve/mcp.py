"""The team as a tool for other agents: `ask` and `search` over the Model Context Protocol.

Both only read. What they bring back from documents is quoted text for the agent to judge, never an instruction.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from jade.engine.events import StepEnded
from jade.errors import JadeError
from jade.serve.desk import Desk, Request
from jade.serve.problems import Problem
from jade.serve.stream import progress
from jade.serve.wishes import Level
from jade.types import Passage, Trace

MAX_PASSAGES = 50
_READS_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class Source(BaseModel):
    """A passage of the indexed documents."""

    title: str
    text: str
    source: str


class Found(BaseModel):
    passages: list[Source]


class Reply(BaseModel):
    answer: str
    supported: bool = Field(description="Whether a cited passage holds the answer.")
    steps: list[str] = Field(description="The sub-questions that were answered on the way, with their answers.")
    citations: list[Source]


def mcp_server(desk: Desk) -> MCPServer:
    server = MCPServer(
        "jade",
        instructions="Answers questions over indexed documents, with citations. Ask whole questions, also ones that "
        "need several facts from different documents; search when you want the passages themselves.",
    )

    @server.tool(annotations=_READS_ONLY)
    async def ask(
        question: Annotated[str, Field(description="A whole question in plain words.")],
        context: Context,
        earlier: Annotated[list[str] | None, Field(description="Earlier turns, oldest first.")] = None,
        effort: Annotated[Level | None, Field(description="What to spend on the answer.")] = None,
    ) -> Reply:
        """Answer a question over the documents; the team plans, splits, searches and reads as it needs."""
        return _reply(await _work(desk, Request(question, tuple(earlier or ()), effort=effort), context))

    @server.tool(annotations=_READS_ONLY)
    async def search(
        query: Annotated[str, Field(description="What to look for.", min_length=1, max_length=4000)],
        limit: Annotated[int, Field(description="How many passages.", ge=1, le=MAX_PASSAGES)] = 5,
    ) -> Found:
        """Find passages of the documents, best first."""
        try:
            (passages,) = await desk.crew.retriever.search([query], limit)
        except JadeError as error:
            raise ToolError(str(error)) from None
        return Found(passages=[_source(passage) for passage in passages])

    return server


async def _work(desk: Desk, request: Request, context: Context) -> Trace:
    """The finished trace; every step on the way is told as progress."""
    num_steps = 0
    async for item in progress(desk, request):
        match item:
            case Trace():
                return item
            case Problem():
                raise ToolError(item.message)
            case StepEnded(step):
                num_steps += 1
                await context.report_progress(num_steps, message=f"{step.role} for {step.observation.question}")
    raise ToolError("the team stopped without an answer")


def _reply(trace: Trace) -> Reply:
    return Reply(
        answer=trace.answer,
        supported=trace.supported,
        steps=[f"{node.question} {node.answer}" for node in trace.nodes[1:] if node.answer],
        citations=[_source(citation.passage) for citation in trace.citations],
    )


def _source(passage: Passage) -> Source:
    return Source(title=passage.title, text=passage.text, source=passage.source or passage.id)
