from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from learn_builders import make_step
from learn_runs import make_config, make_crew, small_world
from transformers import AutoTokenizer

from jade.backbone.chat import ChatFormat
from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.config.team import TeamConfig
from jade.engine.record import dump_trace
from jade.engine.solve import solve
from jade.errors import ConfigError, RetrievalFailed
from jade.learn.questions import read_question_file
from jade.learn.warmstart.best import best_examples, best_traces
from jade.learn.warmstart.collect import Course, collect, plan_course
from jade.learn.warmstart.evidence import keywords
from jade.learn.warmstart.examples import Example, balanced, distinct, read_examples, tokenise, write_examples
from jade.learn.warmstart.gold import Lesson, lesson_of
from jade.learn.warmstart.leaks import LeakReport, drop_leaks
from jade.learn.warmstart.oracle import GOLD_PLANS, TRIED, Plans, teach
from jade.team.crew import Crew
from jade.team.team import build_team
from jade.types import Answer, Effort, Malformed, Node, Note, Passage, Prompt, Question, Trace, Usage


def make_question(text: str = "Who?", answers: tuple[str, ...] = ("Ada",), **metadata: object) -> Question:
    return Question("q", text, answers, "set", metadata)


MUSIQUE = make_question(
    "Where was the author of Emma born?",
    ("Steventon",),
    type="2hop",
    supporting_titles=["Emma", "Jane Austen"],
    decomposition=[
        {"question": "Emma >> author", "answer": "Jane Austen"},
        {"question": "#1 >> place of birth", "answer": "Steventon"},
    ],
)
WIKI = make_question(
    "Which film has the director born later, Full Moon High or Eight On The Lam?",
    ("Full Moon High",),
    type="bridge_comparison",
    supporting_titles=["Full Moon High", "Eight on the Lam", "Larry Cohen", "George Marshall (director)"],
    evidences=[
        ["Full Moon High", "director", "Larry Cohen"],
        ["Eight on the Lam", "director", "George Marshall"],
        ["Larry Cohen", "date of birth", "July 15, 1936"],
        ["George Marshall (director)", "date of birth", "December 29, 1891"],
    ],
)


def speaker(replies: dict[Prompt, str]) -> ScriptedBackbone:
    return ScriptedBackbone(lambda prompt: replies.get(prompt, "<answer>unknown</answer>"))


def questions_of(lesson: Lesson) -> list[str]:
    return [hop.question for hop in lesson.hops]


def test_musique_hops_become_serial_questions_in_words() -> None:
    lesson = lesson_of(MUSIQUE)
    assert lesson.kind == "QDS"
    assert questions_of(lesson) == ["Who is the author of Emma?", "Where was #1 born?"]


def test_evidence_triples_become_questions_that_refer_to_what_was_found() -> None:
    lesson = lesson_of(WIKI)
    assert lesson.kind == "QDS"
    assert questions_of(lesson) == [
        "Who is the director of Full Moon High?",
        "Who is the director of Eight On The Lam?",
        "When was #1 born?",
        "When was #2 born?",
    ]


def test_comparisons_become_independent_questions() -> None:
    evidences = [["Ari", "date of birth", "1952"], ["Henrik", "date of birth", "1904"]]
    lesson = lesson_of(make_question("Who was born earlier, Ari or Henrik?", type="comparison", evidences=evidences))
    assert (lesson.kind, questions_of(lesson)) == ("QDP", ["When was Ari born?", "When was Henrik born?"])


def test_a_type_without_hops_teaches_the_plan_alone() -> None:
    assert lesson_of(make_question(type="bridge")) == Lesson(make_question(type="bridge"), "QDS")


def test_a_plain_question_is_worked_in_one_round() -> None:
    assert lesson_of(make_question(supporting_titles=["A"])).kind == "one-round"


async def lessons_through(crew: Crew, plans: Plans = GOLD_PLANS) -> list[Example]:
    lessons = [lesson_of(question) for question in small_world().questions]
    taught = [await teach(lesson, crew, seed=0, plans=plans) for lesson in lessons]
    return [example for each in taught for example in each]


async def test_every_reply_of_the_oracle_is_well_formed_and_every_role_is_taught(tiny_model: Path) -> None:
    crew = make_crew(Config(), ScriptedBackbone(str))
    examples = await lessons_through(crew)
    assert {example.prompt.role for example in examples} == {"P", "QDS", "QDP", "QR", "DS", "AG", "AS"}
    crew_team = crew.team
    for question in small_world().questions[:20]:
        replies = {e.prompt: e.reply for e in await teach(lesson_of(question), crew, seed=0)}
        trace = await solve(question, make_crew(Config(), speaker(replies)), seed=0)
        taught = [
            step for step in trace.steps if step.generation and crew_team.render(step.role, step.observation) in replies
        ]
        assert taught
        assert not any(isinstance(step.action, Malformed) for step in taught)


async def test_some_planner_examples_may_say_other_plans_and_nothing_else_changes() -> None:
    crew = make_crew(Config(), ScriptedBackbone(str))
    gold, varied = await lessons_through(crew), await lessons_through(crew, Plans(others=0.5))
    assert [example.prompt for example in gold] == [example.prompt for example in varied]
    changed = [other for one, other in zip(gold, varied, strict=True) if one.reply != other.reply]
    assert {other.prompt.role for other in changed} == {"P"}
    assert {other.reply for other in changed} == {f"<workflow>{plan}</workflow>" for plan in TRIED}
    assert len(changed) / sum(example.prompt.role == "P" for example in gold) == pytest.approx(0.5, abs=0.15)


async def test_a_planner_may_be_taught_to_split_nothing_and_nothing_else_changes() -> None:
    crew = make_crew(Config(), ScriptedBackbone(str))
    gold, whole = await lessons_through(crew), await lessons_through(crew, Plans(one_round=True))
    assert [example.prompt for example in gold] == [example.prompt for example in whole]
    assert {other.prompt.role for one, other in zip(gold, whole, strict=True) if one.reply != other.reply} == {"P"}
    assert {example.reply for example in whole if example.prompt.role == "P"} == {"<workflow>R,AG</workflow>"}
    some = await lessons_through(crew, Plans(one_round=True, others=0.5))
    assert {example.reply for example in some if example.prompt.role == "P"} == {
        f"<workflow>{plan}</workflow>" for plan in TRIED
    }


@pytest.mark.parametrize(
    ("prices", "split"),
    [(None, True), (Effort(0.9, 0.9), True), (Effort(1.2, 0.5), True), (Effort(1.1, 1.1), False)],
)
async def test_a_split_that_costs_more_than_any_answer_earns_is_not_taught(prices: Effort | None, split: bool) -> None:
    # In two hops it takes three turns and two searches instead of one each: 2/3 of alpha and 1/3 of beta more.
    crew = make_crew(Config(), ScriptedBackbone(str))
    taught = await teach(lesson_of(MUSIQUE), crew, seed=0, effort=prices)
    assert ("QDS" in taught[0].reply) is split


class BrokenRetriever:
    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        raise RetrievalFailed("the index is gone")

    async def close(self) -> None:
        return None


async def test_a_lesson_that_cannot_be_worked_is_not_lost_in_silence() -> None:
    crew = replace(make_crew(Config(), ScriptedBackbone(str)), retriever=BrokenRetriever())
    with pytest.raises(RetrievalFailed, match="the index is gone"):
        await teach(lesson_of(make_question(type="bridge")), crew, seed=0)


async def test_a_lesson_whose_search_failed_is_not_lost_in_silence() -> None:
    """By a plan that searches for the question as it stands the oracle itself asks for nothing."""
    team = build_team(TeamConfig(workflows=("R,AG",)))
    crew = replace(make_crew(Config(), ScriptedBackbone(str)), retriever=BrokenRetriever(), team=team)
    with pytest.raises(RetrievalFailed, match="the index is gone"):
        await teach(lesson_of(make_question()), crew, seed=0)


async def test_what_stops_a_course_is_raised_as_it_is(tiny_model: Path) -> None:
    """So that a user reads one line: an error in a group of errors would be a traceback."""
    config = make_config(tiny_model)
    team = make_crew(config, ScriptedBackbone(str)).team
    course = Course(team, [lesson_of(make_question(type="bridge"))], [], LeakReport(1, Counter()))
    with pytest.raises(RetrievalFailed, match="the index is gone"):
        await collect(config, course, BrokenRetriever())


async def test_prompts_of_examples_are_those_of_inference_to_the_letter(tiny_model: Path) -> None:
    question = next(q for q in small_world().questions if q.metadata["workflow"] == "QDS")
    crew = make_crew(Config(), ScriptedBackbone(str))
    examples = await teach(lesson_of(question), crew, seed=0)
    replies = {example.prompt: example.reply for example in examples}
    asked: list[Prompt] = []

    def speak(prompt: Prompt) -> str:
        asked.append(prompt)
        return replies.get(prompt, "<answer>none</answer>")

    trace = await solve(question, make_crew(Config(), ScriptedBackbone(speak)), seed=0)
    assert set(replies) <= set(asked)
    assert trace.nodes[0].workflow == "QDS"
    assert [node.written for node in trace.nodes[1:]] == [hop["question"] for hop in question.metadata["decomposition"]]


async def test_answers_are_taught_only_where_the_passages_hold_them() -> None:
    for example in await lessons_through(make_crew(Config(), ScriptedBackbone(str))):
        if example.prompt.role == "AG":
            answer = example.reply.removeprefix("<answer>").removesuffix("</answer>")
            assert answer in ("yes", "no") or answer.lower() in example.prompt.user.lower()


async def test_selections_name_the_evidence_pages() -> None:
    titles = {title for q in small_world().questions for title in q.metadata["supporting_titles"]}
    for example in await lessons_through(make_crew(Config(), ScriptedBackbone(str))):
        if example.prompt.role == "DS":
            number = example.reply.removeprefix("<id>").removesuffix("</id>").split(",")[0]
            line = next(line for line in example.prompt.user.splitlines() if line.startswith(number))
            assert line.partition("(")[2].partition("):")[0] in titles


async def test_a_selection_keeps_every_passage_that_holds_one_of_the_gold_answers() -> None:
    page = small_world().pages[0]
    question = make_question(f"What of {page.title}?", ("Nowhere written", page.title), supporting_titles=[page.title])
    crew = make_crew(Config(team=TeamConfig(workflows=("R,DS,AG",))), ScriptedBackbone(str))
    roles = {example.prompt.role: example.reply for example in await teach(lesson_of(question), crew, seed=0)}
    assert roles["DS"].startswith("<id>Document")
    assert roles["AG"] == f"<answer>{page.title}</answer>"


async def test_a_question_of_several_hops_that_may_not_be_split_is_worked_whole_with_the_pages_of_all_hops() -> None:
    crew = make_crew(Config(team=TeamConfig(workflows=("R,AG", "R,DS,AG"))), ScriptedBackbone(str))
    kept: list[set[str]] = []
    for question in small_world().questions:
        if question.metadata["workflow"] == "one-round":
            continue
        examples = {example.prompt.role: example for example in await teach(lesson_of(question), crew, seed=0)}
        assert examples["P"].reply in ("<workflow>R,AG</workflow>", "<workflow>R,DS,AG</workflow>")
        if "DS" in examples:
            titles = re.findall(r"^Document\d+ \((.+?)\):", examples["DS"].prompt.user, re.MULTILINE)
            chosen = {titles[int(number)] for number in re.findall(r"Document(\d+)", examples["DS"].reply)}
            assert chosen == set(titles) & set(question.metadata["supporting_titles"])
            kept.append(chosen)
    assert any(len(pages) > 1 for pages in kept)


@pytest.mark.parametrize(
    ("answer", "plans", "plan"),
    [
        ("in its text", GOLD_PLANS, "one round"),
        ("nowhere", GOLD_PLANS, "QDS"),
        ("in its text", Plans(by_hops=True), "QDS"),
    ],
)
async def test_a_type_without_hops_is_split_only_where_the_question_does_not_find_its_answer_unless_hops_decide(
    answer: str, plans: Plans, plan: str
) -> None:
    page = small_world().pages[0]
    question = make_question(
        f"What of {page.title}?", (page.title if answer == "in its text" else "Nobody",), type="bridge"
    )
    examples = await teach(lesson_of(question), make_crew(Config(), ScriptedBackbone(str)), seed=0, plans=plans)
    planned = next(example.reply for example in examples if example.prompt.role == "P")
    assert ("QDS" in planned) == (plan == "QDS")


@pytest.mark.parametrize(("gain", "turn", "plan"), [(1.0, 0.6, "QDS"), (0.3, 0.6, "one round"), (0.3, 0.3, "QDS")])
async def test_prices_above_what_a_split_gains_leave_a_question_whole(gain: float, turn: float, plan: str) -> None:
    """A split of two hops takes three rounds where one would do: two thirds of the price of turns."""
    question = next(
        q for q in small_world().questions if q.metadata["workflow"] == "QDS" and len(q.metadata["decomposition"]) == 2
    )
    crew = make_crew(Config(), ScriptedBackbone(str))
    examples = await teach(lesson_of(question), crew, seed=0, effort=Effort(turn, 0.0), plans=Plans(split_gain=gain))
    planned = next(example for example in examples if example.prompt.role == "P")
    assert f"turn {turn:.2f}" in planned.prompt.user
    assert ("QDS" in planned.reply) == (plan == "QDS")


def test_keywords_keep_what_can_be_searched_for() -> None:
    assert keywords("Who is the author of Emma?") == "author Emma"
    assert keywords("What is it?") == "What is it?"


@pytest.mark.parametrize(
    ("kind", "held_out"),
    [
        ("question", make_question("where was the AUTHOR of Emma born", ("Bath",))),
        ("question", make_question("Where was Jane Austen born?", ("Bath",))),
        (
            "evidence",
            make_question("In which village was Austen born?", ("Steventon",), supporting_titles=["Jane Austen"]),
        ),
        ("pages", make_question("Something else?", ("x",), supporting_titles=["Jane Austen", "Emma"])),
    ],
)
def test_a_lesson_that_shares_a_question_a_hop_or_its_evidence_is_dropped(kind: str, held_out: Question) -> None:
    kept, report = drop_leaks([lesson_of(MUSIQUE)], [held_out])
    assert kept == []
    assert report.dropped == {kind: 1}


def test_a_shared_fact_is_a_leak_however_it_is_asked() -> None:
    held_out = make_question("Who made Full Moon High?", ("x",), evidences=[["Full Moon High", "director", "Cohen"]])
    kept, report = drop_leaks([lesson_of(WIKI)], [held_out])
    assert (kept, report.dropped) == ([], {"fact": 1})


def test_a_shared_page_with_another_answer_is_no_leak() -> None:
    held_out = make_question("When did Austen die?", ("1817",), supporting_titles=["Jane Austen"])
    kept, report = drop_leaks([lesson_of(MUSIQUE)], [held_out])
    assert len(kept) == 1
    assert str(report).startswith("0 of 1")


def test_the_worlds_splits_share_nothing() -> None:
    splits = small_world().splits
    lessons = [lesson_of(question) for question in splits["train"]]
    assert drop_leaks(lessons, [*splits["dev"], *splits["test"]])[1].dropped == {}


def test_no_lesson_from_real_data_shares_anything_with_the_questions_it_is_measured_on(benchmark_data: Path) -> None:
    lessons = [lesson_of(q) for q in read_question_file(benchmark_data / "musique.train.jsonl.gz")]
    held_out = read_question_file(benchmark_data / "musique.test.jsonl.gz")
    kept, _ = drop_leaks(lessons, held_out)
    assert drop_leaks(kept, held_out)[1].dropped == {}
    assert 0.85 < len(kept) / len(lessons) < 1.0
    # The test questions themselves, taught as lessons, must all be caught.
    assert drop_leaks([lesson_of(q) for q in held_out], held_out)[0] == []


def make_own_trace(id: str, answer: str, calls: int) -> Trace:
    steps = (make_step(0, "AG", action=Answer(answer)), make_step(1, "AG", action=Malformed("no")))
    question = Question("q", "Who?", ("Ada",))
    return Trace(id, question, (Node("0", None, "Who?", "Who?"),), steps, answer, usage=Usage(calls=calls))


def test_of_the_teams_own_traces_the_cheapest_right_one_is_learned_from() -> None:
    traces = [make_own_trace("wrong", "Bob", 1), make_own_trace("dear", "Ada", 9), make_own_trace("cheap", "Ada", 2)]
    assert [trace.id for trace in best_traces(traces, 0.8)] == ["cheap"]
    namesake = replace(traces[1], question=replace(traces[1].question, dataset="other"))
    assert [trace.id for trace in best_traces([*traces, namesake], 0.8)] == ["cheap", "dear"]
    team = make_crew(Config(), ScriptedBackbone(str)).team
    (example,) = best_examples(traces, team, 0.8)
    assert (example.prompt, example.reply) == (team.render("AG", traces[2].steps[0].observation), "text")


def test_what_a_role_said_that_this_team_does_not_have_is_no_example() -> None:
    trace = make_own_trace("one", "Ada", 2)
    trace = replace(trace, steps=(make_step(0, "CK", action=Note("checked")), *trace.steps))
    examples = best_examples([trace], make_crew(Config(), ScriptedBackbone(str)).team, 0.8)
    assert [example.prompt.role for example in examples] == ["AG"]


def test_questions_of_two_datasets_that_share_an_id_each_have_a_best_trace() -> None:
    trace = make_own_trace("one", "Ada", 2)
    other = replace(trace, id="other", question=replace(trace.question, dataset="another"))
    assert [best.id for best in best_traces([trace, other], 0.8)] == ["one", "other"]


def test_a_held_out_question_is_no_example_though_another_dataset_has_its_id(
    tiny_model: Path, tmp_path: Path, index: Path
) -> None:
    traces = [make_own_trace(name, "Ada", 2) for name in ("clean", "leaked")]
    clean, leaked = traces[0], replace(traces[1], question=Question("q", "Who wrote Emma?", ("Austen",), "another"))
    (tmp_path / "own.jsonl").write_text("".join(dump_trace(trace) + "\n" for trace in (clean, leaked)))
    row = {"id": "test_9", "question": leaked.question.text, "golden_answers": ["Austen"]}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    settings = {"best_traces": [str(tmp_path / "own.jsonl")], "held_out": [str(tmp_path / "test.jsonl")]}
    config = make_config(tiny_model, {"retrieval": {"index": str(index)}, "warmstart": settings})
    assert [trace.id for trace in plan_course(config).own_traces] == ["clean"]


def test_where_no_trace_is_left_the_setting_that_names_them_is_named(
    tiny_model: Path, tmp_path: Path, index: Path
) -> None:
    (tmp_path / "own.jsonl").touch()
    settings = {"best_traces": [str(tmp_path / "own.jsonl")]}
    config = make_config(tiny_model, {"retrieval": {"index": str(index)}, "warmstart": settings})
    with pytest.raises(ConfigError, match=r"^warmstart\.best_traces: these files hold no trace"):
        plan_course(config)


async def test_a_course_gives_the_same_examples_every_time(tiny_model: Path) -> None:
    config = make_config(tiny_model, {"warmstart": {"passes": 2, "roles": ["P", "AG"]}})
    lessons = [lesson_of(question) for question in small_world().splits["train"][:10]]
    crew = make_crew(config, ScriptedBackbone(str))
    course = Course(crew.team, lessons, [], LeakReport(10, {}))  # type: ignore[arg-type]
    first, second = [await collect(config, course, crew.retriever) for _ in range(2)]
    assert first == second == distinct(first)
    assert {example.prompt.role for example in first} == {"P", "AG"}


def test_examples_are_balanced_by_a_cap_and_by_repeating_rare_roles() -> None:
    def some(role: str, count: int, origin: str = "nq") -> list[Example]:
        return [Example(Prompt(role, "", str(n)), "", origin) for n in range(count)]

    examples = [*some("P", 9), *some("P", 9, "squad"), *some("AG", 6), *some("AS", 1), *some("QDS", 3)]
    counts = Counter(example.prompt.role for example in balanced(examples, per_role=6, repeat=4))
    assert counts == {"P": 12, "AG": 6, "QDS": 6, "AS": 4}
    assert balanced(examples, per_role=0, repeat=1) == examples
    own = Counter(example.prompt.role for example in balanced(examples, 6, 1, {"P": 0, "AG": 2}))
    assert own == {"P": 18, "AG": 2, "QDS": 3, "AS": 1}
    assert balanced([], 0, 1) == []


def test_examples_survive_the_disk(tmp_path: Path) -> None:
    examples = [Example(Prompt("AG", "Answer.", "Question: ¿Qué?\n"), "<answer>x</answer>", "nq")]
    write_examples(tmp_path / "e.jsonl.gz", examples)
    assert list(read_examples(tmp_path / "e.jsonl.gz", {"AG": "Answer."})) == examples


def test_examples_are_tokenised_as_the_sampler_reads_and_writes(tiny_model: Path) -> None:
    chat = ChatFormat(AutoTokenizer.from_pretrained(tiny_model))
    example = Example(Prompt("AG", "Answer.", "Question: Who?"), "<answer>Ada Lane</answer>")
    (tokens,) = tokenise([example], chat, 400)
    assert tokens.prompt_ids == chat.encode(example.prompt, 400).ids
    assert tokens.action_ids[-1] == chat.tokenizer.eos_token_id
    assert chat.decode_all([tokens.action_ids]) == [example.reply]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"warmstart": {"questions": []}}, r"warmstart\.questions"),
        ({"warmstart": {"questions": ["absent.jsonl"]}}, r"warmstart\.questions: absent"),
        ({"warmstart": {"roles": ["P", "XY"]}}, r"warmstart\.roles: 'XY'"),
        ({"warmstart": {"best_traces": ["absent.jsonl"]}}, r"warmstart\.best_traces"),
        ({"retrieval": {"index": "absent"}}, r"retrieval\.index: absent"),
    ],
)
def test_a_bad_course_is_refused_before_any_work(
    tiny_model: Path, index: Path, settings: dict[str, object], field: str
) -> None:
    config = make_config(tiny_model, {"retrieval": {"index": str(index)}, **settings})
    with pytest.raises(ConfigError, match=field):
        plan_course(config)
