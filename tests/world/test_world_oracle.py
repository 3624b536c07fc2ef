"""Looking questions up by their words."""

from __future__ import annotations

from jade.corpus.world import filled, make_world, oracle

WORLD = make_world(200, 200, 3)


def test_every_question_and_every_filled_sub_question_is_known() -> None:
    known = oracle(WORLD)
    for question in WORLD.questions:
        assert known[question.text] is question
        hops = question.metadata["decomposition"]
        for text, hop in zip(filled(hops), hops, strict=True):
            assert "#" not in text
            assert hop["answer"] == known[text].metadata["decomposition"][0]["answer"]


def test_sub_questions_are_questions_of_one_round() -> None:
    serial = next(question for question in WORLD.questions if question.metadata["hops"] == 4)
    known = oracle(WORLD)
    for text, hop in zip(filled(serial.metadata["decomposition"]), serial.metadata["decomposition"], strict=True):
        record = known[text]
        assert record.metadata["workflow"] == "one-round"
        assert record.metadata["supporting_titles"] == [hop["support"]]
        assert record.answers[0] == hop["answer"]


def test_references_are_filled_by_number() -> None:
    hops = [{"question": "Who made X?", "answer": "Bral"}, {"question": "Where was #1 born?", "answer": "Tov"}]
    assert filled(hops) == ["Who made X?", "Where was Bral born?"]
