"""The official OpenAI client, unchanged, against the server."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from serve_builders import NESTED, PARALLEL, SIMPLE, make_app, make_config, make_crew, play, serving

from jade.types import Prompt


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with serving(make_app()) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, *turns: tuple[str, str]) -> openai.types.chat.ChatCompletion:
    messages = [{"role": role, "content": content} for role, content in turns]
    return client.chat.completions.create(model="jade", messages=messages)  # type: ignore[arg-type]


def test_the_client_gets_the_answer_as_a_message(client: openai.OpenAI) -> None:
    reply = ask(client, ("user", SIMPLE))
    assert reply.choices[0].message.content == "Fernhill"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0


def test_the_reply_carries_citations_and_the_trace_id(client: openai.OpenAI) -> None:
    extension = ask(client, ("user", NESTED)).model_extra["jade"]  # type: ignore[index]
    assert extension["trace_id"]
    assert extension["supported"] is True
    assert [(cited["node"], cited["title"]) for cited in extension["citations"]] == [
        ("0.1", "Ada Marlow"),
        ("0.2", "Fernhill"),
    ]
    assert extension["citations"][0]["source"] == "country.txt:1"
    assert (extension["rounds"], extension["retrievals"]) == (3, 2)


def test_every_reply_has_a_trace_id_of_its_own(client: openai.OpenAI) -> None:
    ids = {ask(client, ("user", SIMPLE)).model_extra["jade"]["trace_id"] for _ in range(3)}  # type: ignore[index]
    assert len(ids) == 3


def test_the_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["jade"]
    assert client.models.retrieve("jade").id == "jade"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_stream_tells_every_step_before_the_answer(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="jade",
        messages=[{"role": "user", "content": PARALLEL}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    told = [chunk.model_extra["jade"] for chunk in chunks if "jade" in (chunk.model_extra or {})]  # type: ignore[index]
    roles = [event["role"] for event in told if event.get("event") == "step"]
    assert roles[:2] == ["P", "QDP"]
    assert roles[-1] == "AS"
    assert sorted(roles) == sorted(["P", "QDP", *["P", "QR", "R", "DS", "AG"] * 2, "AS"])
    text = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert text == ["Brackwater"]
    assert told[-1]["trace_id"]
    assert chunks[-1].usage is not None


def test_a_stream_without_options_always_has_a_choice(client: openai.OpenAI) -> None:
    """Code in the wild reads `chunk.choices[0]` without looking."""
    stream = client.chat.completions.create(model="jade", messages=[{"role": "user", "content": SIMPLE}], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Fernhill"


def test_earlier_turns_reach_the_rewriter_and_system_text_does_not() -> None:
    seen: list[str] = []

    def listening(prompt: Prompt) -> str:
        if prompt.role == "QR":
            seen.append(prompt.user)
        return play(prompt)

    turns = [("system", "Be kind."), ("user", "Who is Ada?"), ("assistant", "A botanist."), ("user", SIMPLE)]
    with serving(make_app(make_crew(listening))) as url:
        ask(openai.OpenAI(base_url=f"{url}/v1", api_key="unused"), *turns)
    (prompt,) = seen
    assert prompt.splitlines()[:2] == ["Earlier: user: Who is Ada?", "Earlier: assistant: A botanist."]
    assert "Be kind" not in prompt


def test_only_the_latest_turns_are_kept() -> None:
    seen: list[str] = []

    def listening(prompt: Prompt) -> str:
        if prompt.role == "QR":
            seen.append(prompt.user)
        return play(prompt)

    config = make_config(max_context_turns=1)
    turns = [("user", "first"), ("assistant", "second"), ("user", SIMPLE)]
    with serving(make_app(make_crew(listening), config)) as url:
        ask(openai.OpenAI(base_url=f"{url}/v1", api_key="unused"), *turns)
    assert "second" in seen[0]
    assert "first" not in seen[0]


def test_text_parts_are_read_and_pictures_are_refused(client: openai.OpenAI) -> None:
    text = {"type": "text", "text": SIMPLE}
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    reply = client.chat.completions.create(model="jade", messages=[{"role": "user", "content": [text]}])  # type: ignore[list-item,misc]
    assert reply.choices[0].message.content == "Fernhill"
    with pytest.raises(openai.UnprocessableEntityError, match="parts of type text"):
        client.chat.completions.create(model="jade", messages=[{"role": "user", "content": [picture]}])  # type: ignore[list-item,misc]


def test_a_conversation_without_a_user_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="role user"):
        ask(client, ("assistant", "hello"))
