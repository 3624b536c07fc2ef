"""Who speaks with whom: a backbone for a role, a role from outside, an index behind a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from answering_server import ONE_HOP, SERIAL, Call, Server, honest, serving
from cli_runs import jade, start

from patience import PATIENCE_SECONDS

CHECKER = dedent('''
    """A role that looks at the documents before the answer is written, and a tool that knows the date."""

    from jade.team.roles import RoleSpec, ToolSpec
    from jade.types import Note

    async def today(memory, retriever, k):
        return Note("1 May 1816")

    def register(team):
        checker = RoleSpec("FC", "fact checker", "work", "checker.md", lambda text, seen: Note(text),
                           lambda text, seen: None, sees=frozenset({"passages"}), after=frozenset({"R"}))
        team.add(checker, prompt_text="Do the documents agree?")
        team.add(ToolSpec("DATE", "calendar", today))
''')


def test_a_frozen_remote_executor_works_beside_another_remote_planner(index: Path, server: Server) -> None:
    with serving() as frozen:
        options = [part for role in ("AG", "DS") for part in ("--set", f"roles.{role}.model={frozen.url}")]
        done = jade("ask", SERIAL, "--index", index, "--model", server.url, *options)
    assert "Answer: Corby" in done.out
    assert sorted(set(server.roles)) == ["AS", "P", "QDS", "QR"]
    assert frozen.roles == ["DS", "AG", "DS", "AG"]


def test_a_role_whose_server_is_down_leaves_the_others_working(index: Path, server: Server) -> None:
    with serving() as gone:
        url = gone.url
    selector = ["--set", f"roles.DS.model={url}", "--set", "roles.DS.retries=0"]
    done = jade("ask", ONE_HOP, "--index", index, "--model", server.url, *selector)
    assert done.status == 0
    assert "DS  failed: BackboneFailed" in done.out
    assert "Answer: Ada Lenn" in done.out


def test_a_role_and_a_tool_from_a_file_join_by_a_setting(index: Path) -> None:
    Path("checker.py").write_text(CHECKER)

    def script(call: Call) -> str:
        return "They agree." if call.role == "Do the documents agree?" else honest(call)

    settings = ["--set", 'team.extensions=["checker.py"]', "--set", 'team.workflows=["DATE,R,FC,AG"]']
    with serving(script) as server:
        done = jade("ask", ONE_HOP, "--index", index, "--model", server.url, *settings)
    assert done.status == 0
    assert "FC  They agree." in done.out
    assert "DATE 1 May 1816" in done.out
    checked, answered = server.calls
    assert checked.role == "Do the documents agree?"
    assert "Document0 (mill): Ashford Mill was founded" in checked.user
    assert answered.user.splitlines()[-3:] == ["DATE: 1 May 1816", "FC: They agree.", f"Question: {ONE_HOP}"]


def test_prompts_of_ones_own_are_used(index: Path, server: Server) -> None:
    Path("prompts").mkdir()
    Path("prompts/answerer.md").write_text("Reply like a pirate.")
    server.script = lambda call: "<answer>Ada Lenn</answer>" if call.role == "Reply like a pirate." else honest(call)
    done = jade("ask", ONE_HOP, "--index", index, "--model", server.url, "--set", "team.prompts=prompts")
    assert "Answer: Ada Lenn" in done.out
    assert server.roles == ["P", "QR", "DS", "Reply like a pirate."]


@contextmanager
def retrieve_server(index: Path, folder: Path) -> Iterator[str]:
    with start("retrieve-server", "--index", index, "--port", "0", cwd=folder) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        yield next(line.split("running on ")[1].split()[0] for line in lines if "running on " in line)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def test_a_team_may_search_and_think_over_http_alone(index: Path, server: Server, here: Path) -> None:
    with retrieve_server(index, here) as url:
        done = jade("ask", SERIAL, "--index", f"{url}/retrieve", "--model", server.url)
    assert "Answer: Corby" in done.out
    assert "✓ 0.2: Ada Lenn (" in done.out


def test_a_question_whose_every_search_failed_has_failed(server: Server) -> None:
    with serving() as gone:
        url = gone.url
    settings = ["--set", "retrieval.retries=0", "--set", 'team.workflows=["R,AG"]']
    call = ("ask", ONE_HOP, "--index", url, "--model", server.url, *settings)
    done = jade(*call)
    assert done.status == 1
    said = "jade: no answer: every search failed, the last one with RetrievalFailed: "
    assert done.err.splitlines()[-1].startswith(said)
    assert done.out == ""
    assert "R   failed: RetrievalFailed" in jade("trace", "show", "traces.jsonl").out
    as_json = jade(*call, "--json")
    assert as_json.status == 1
    assert json.loads(as_json.out)["trace"]["error"].startswith("every search failed")
