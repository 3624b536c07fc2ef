"""One schema for everything that can be set: TOML in, dotted overrides, TOML out.

A config is frozen and checked once, when it is loaded; an ablation is a value here, never an edit of code.
Every field has its default, so an empty file is a valid config.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jade.errors import ConfigError

ROLE_CODES = ("P", "QDS", "QDP", "QR", "DS", "AG", "AS")
"""The built-in roles that have weights (retrieval is a tool and is never trained)."""


class Section(BaseModel):
    """A part of the config: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TeamConfig(Section):
    workflows: tuple[str, ...] = ()
    """The workflows the planner may choose from, printed ("QDS", "R,AG"); empty means all that the grammar allows.
    With exactly one, no planner is called."""
    child_workflows: tuple[str, ...] = ()
    """The same for sub-questions; empty means as `workflows`."""
    prompts: Path | None = None
    """A folder of `<role>.md` files that replace the shipped prompts of the same name."""
    extensions: tuple[str, ...] = ()
    """Modules or .py files with roles and tools of one's own; each has `register(team)`."""
    constrain_plans: bool = False
    """Decode plans so that they are always legal. Inference only: masking changes what is learned from."""


class SamplingConfig(Section):
    temperature: float = Field(0.0, ge=0.0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Nucleus sampling; keep 1 in training, where log-probs must be those of the full distribution."""


class BudgetConfig(Section):
    rounds: int = Field(8, ge=1)
    """Planner turns a question may take."""
    depth: int = Field(2, ge=0)
    """How deep decomposition may nest; 0 forbids it."""
    children: int = Field(4, ge=1)
    """Sub-questions one decomposition may ask; the rest are dropped, and the trace says so."""
    retrievals: int = Field(8, ge=0)
    """Searches a question may make."""
    calls: int = Field(64, ge=1)
    """Model calls a question may make."""
    tokens: int = Field(65536, ge=1)
    """Tokens, read and written, a question may use."""
    seconds: float = Field(600.0, gt=0.0)
    """Wall-clock time a question may take."""


class BackboneConfig(Section):
    model: str = "smollm2-135m"
    """A shipped name, a Hugging Face folder or name, or the URL of an OpenAI-compatible server."""
    adapter: Path | None = None
    """A LoRA adapter (peft folder) over the model."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on CPU, bfloat16 on a GPU."""
    threads: int = Field(0, ge=0)
    """CPU threads of torch; 0 leaves torch's own choice."""
    max_batch: int = Field(64, ge=1)
    """Requests a local model works on at once."""
    max_prompt_tokens: int = Field(3072, ge=16)
    """Longer prompts lose passages' tails, never the question."""
    inline: bool = False
    """Run the model inside the event loop: slower to react, but every batch is the same in every run."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds a remote server's key."""
    timeout_seconds: float = Field(120.0, gt=0.0)
    """For one remote call."""
    retries: int = Field(4, ge=0)
    """Further tries after a remote call failed in a way that may pass."""
    concurrency: int = Field(64, ge=1)
    """Remote calls in flight at once."""


class RetrievalConfig(Section):
    index: str = ""
    """An index folder, or the URL of a server that speaks `POST /retrieve`."""
    kind: Literal["auto", "bm25", "dense", "hybrid"] = "auto"
    """How to search an index folder; auto takes the best it holds."""
    k: int = Field(5, ge=1)
    """Passages per search."""
    timeout_seconds: float = Field(30.0, gt=0.0)
    """For one remote search."""


class RewardConfig(Section):
    alpha: float = Field(0.0, ge=0.0)
    """Price of turns: alpha * min(rounds, 3) / 3."""
    beta: float = Field(0.0, ge=0.0)
    """Price of retrievals: beta * min(retrievals, 3) / 3."""
    format_penalty: float = Field(-1.0, le=0.0)
    """Added to the reward of a step whose output was malformed, and to no other."""
    dial: float = Field(0.0, ge=0.0)
    """Above 0: alpha and beta are drawn per question from [0, dial] and told to the planner, so that one policy
    serves every budget."""


class Config(Section):
    """Everything. `learn` and `eval` sections live beside their rooms' first use below."""

    seed: int = 0
    team: TeamConfig = TeamConfig()
    sampling: SamplingConfig = SamplingConfig()
    budget: BudgetConfig = BudgetConfig()
    backbone: BackboneConfig = BackboneConfig()
    roles: dict[str, BackboneConfig] = Field(default_factory=dict)
    """Roles that speak with a backbone of their own, by code; the others share `backbone`."""
    retrieval: RetrievalConfig = RetrievalConfig()
    reward: RewardConfig = RewardConfig()


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, apply `section.field=value` overrides, check everything once."""
    data = _read(path) if path else {}
    for override in overrides:
        _apply(data, override)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("; ".join(_complaints(error, path))) from None


def dump_config(config: Config) -> str:
    """The config as TOML that loads to the same config."""
    return "\n".join(_toml_lines(config.model_dump(mode="json", exclude_none=True), ())) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {path} is not TOML: {error}") from None


def _apply(data: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"override {override!r} is not of the form section.field=value")
    *sections, field = name.strip().split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"override {override!r}: {section} is not a section")
    data[field] = _value(text.strip())


def _value(text: str) -> Any:
    """TOML if it is TOML (numbers, booleans, lists, quoted strings), otherwise the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _complaints(error: ValidationError, path: Path | None) -> Iterator[str]:
    where = f"{path}: " if path else ""
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"])
        given = "" if problem["type"] in ("missing", "extra_forbidden") else f" (given: {problem['input']!r})"
        message = "no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
        yield f"{where}{field}: {message}{given}"


def _toml_lines(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    if path and plain:
        yield f"\n[{'.'.join(path)}]"
    for key, value in plain.items():
        yield f"{key} = {_toml_value(value)}"
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _toml_lines(value, (*path, key))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
