"""schemathesis reads the OpenAPI document and tries what it allows and what it forbids."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from serve_builders import make_app, make_config, make_crew, serving

from patience import PATIENCE_SECONDS

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
NUM_EXAMPLES = int(os.environ.get("JADE_FUZZ_EXAMPLES", "10"))
"""Requests of each kind to each endpoint."""


@pytest.fixture(scope="module")
def operations() -> Iterator[list[Any]]:
    app = make_app(make_crew(), make_config(max_question_chars=200))
    with serving(app) as url:
        yield [found.ok() for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations()]


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_breaks_the_server_or_its_document(operations: list[Any], mode: str) -> None:
    """Never a 5xx, and every response is of a status, a type and a shape that the document names."""
    checked = [_check(operation, schemathesis.GenerationMode(mode)) for operation in operations]
    assert sum(checked) >= NUM_EXAMPLES * 2
    assert len(operations) >= 6


def _check(operation: Any, mode: Any) -> int:
    """How many requests were tried; what has no body has nothing that could be wrong."""
    num_tried = 0

    @settings(
        max_examples=NUM_EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case: Any) -> None:
        nonlocal num_tried
        num_tried += 1
        response = case.call(timeout=PATIENCE_SECONDS)
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=_checks())

    if mode.value == "positive" or operation.body:
        tried()
    return num_tried


def _checks() -> list[Any]:
    from schemathesis import checks

    checks.load_all_checks()
    return [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
