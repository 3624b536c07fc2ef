"""The config: TOML in, dotted overrides, TOML out; every complaint is one line that names the setting."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import jade.config
from jade.config import BackboneConfig, Config, Section, dump_config, load_config
from jade.errors import ConfigError

TEXT = st.text(max_size=8) | st.sampled_from(["", "true", "1", "a.b", 'quo"te', "back\\slash", "line\nend\r\x7f", "#x"])


SHARES = st.floats(0.0, 1.0)
CHECKED: dict[str, st.SearchStrategy[Any]] = {
    "effort": SHARES | st.sampled_from(["low", "medium", "high"]),
    "part": st.tuples(SHARES, SHARES).filter(lambda part: part[0] < part[1]),
}
"""What fields accept that have a check of their own beside type and bounds, by name."""


def values_of(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Whatever a field of this type accepts, within its bounds."""
    if get_origin(annotation) is Annotated:
        kind, field = get_args(annotation)
        return values_of(kind, field.metadata)
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is tuple:
        return st.lists(values_of(get_args(annotation)[0], []), max_size=3)
    if get_origin(annotation) is dict:
        return st.dictionaries(
            values_of(get_args(annotation)[0], []), values_of(get_args(annotation)[1], []), max_size=2
        )
    if get_origin(annotation) in (Union, types.UnionType):
        return st.one_of(*(values_of(each, metadata) for each in get_args(annotation) if each is not types.NoneType))
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return sections(annotation)
    plain = {bool: st.booleans(), str: TEXT, Path: TEXT.map(Path)}
    return plain[annotation] if annotation in plain else numbers(annotation, metadata)


def numbers(kind: type, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Integers or floats inside the bounds that a field states."""
    bounds = {type(bound): next(iter(vars_of(bound))) for bound in metadata}
    low = bounds.get(annotated_types.Ge, bounds.get(annotated_types.Gt))
    high = bounds.get(annotated_types.Le, bounds.get(annotated_types.Lt))
    if kind is int:
        return st.integers(low, high)
    return st.floats(
        low,
        high,
        exclude_min=annotated_types.Gt in bounds,
        exclude_max=annotated_types.Lt in bounds,
        allow_nan=False,
    )


def vars_of(bound: Any) -> list[Any]:
    return [getattr(bound, name) for name in ("ge", "gt", "le", "lt") if hasattr(bound, name)]


def sections(section: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    fields: dict[str, FieldInfo] = section.model_fields
    values = {
        name: CHECKED[name] if name in CHECKED else values_of(field.annotation, field.metadata)
        for name, field in fields.items()
    }
    return st.fixed_dictionaries({}, optional=values)


@given(sections(Config))
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_config_written_as_toml_loads_to_the_same_config(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    config = Config.model_validate(data)
    path = tmp_path_factory.mktemp("config") / "jade.toml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config


def test_an_empty_file_is_the_default_config(tmp_path: Path) -> None:
    path = tmp_path / "jade.toml"
    path.write_text("")
    assert load_config(path) == load_config() == Config()


def test_overrides_are_applied_over_the_file_in_order(tmp_path: Path) -> None:
    path = tmp_path / "jade.toml"
    path.write_text('seed = 3\n[budget]\nrounds = 5\n[roles.QR]\nmodel = "a"\n')
    overrides = ["budget.rounds=6", "budget.rounds=7", "roles.QR.threads = 2", "roles.AG.model=http://x/v1#m"]
    config = load_config(path, overrides)
    assert (config.seed, config.budget.rounds) == (3, 7)
    assert config.roles["QR"] == BackboneConfig(model="a", threads=2)
    assert config.roles["AG"].model == "http://x/v1#m"


@pytest.mark.parametrize(
    ("override", "section", "field", "value"),
    [
        ("seed=7", None, "seed", 7),
        ("sampling.temperature=0.5", "sampling", "temperature", 0.5),
        ("team.constrain_plans=true", "team", "constrain_plans", True),
        ('team.workflows=["QDS", "R,AG"]', "team", "workflows", ("QDS", "R,AG")),
        ("backbone.model=smollm2-135m", "backbone", "model", "smollm2-135m"),
        ('backbone.model="quoted"', "backbone", "model", "quoted"),
        ("backbone.model=a=b", "backbone", "model", "a=b"),
        ("team.prompts=my prompts", "team", "prompts", Path("my prompts")),
        ("retrieval.index=2024", "retrieval", "index", "2024"),
        ("retrieval.index=2024-05-01", "retrieval", "index", "2024-05-01"),
        ('retrieval.index="2024"', "retrieval", "index", "2024"),
        ("retrieval.index=", "retrieval", "index", ""),
        ("team.prompts=1e3", "team", "prompts", Path("1e3")),
        ("backbone.model=true", "backbone", "model", "true"),
    ],
)
def test_an_override_is_toml_where_it_can_be_and_text_otherwise(
    override: str, section: str | None, field: str, value: object
) -> None:
    config = load_config(overrides=[override])
    assert getattr(getattr(config, section) if section else config, field) == value


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("budget.rounds=0", "^budget.rounds: "),
        ("bugdet.rounds=3", "^bugdet: "),
        ('team.workflows=["R,AG", 3]', r"^team\.workflows\.1: "),
        ("seed=1", r"^.*team\.toml: budget\.depth: "),
    ],
)
def test_the_file_is_named_where_the_fault_is_in_it(tmp_path: Path, override: str, complaint: str) -> None:
    (tmp_path / "team.toml").write_text("[budget]\ndepth = -1\n" if override == "seed=1" else "[budget]\ndepth = 1\n")
    with pytest.raises(ConfigError, match=complaint):
        load_config(tmp_path / "team.toml", [override])


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("budget.rouns=3", "budget.rouns: no such setting (did you mean budget.rounds?)"),
        ("bugdet.rounds=3", "bugdet: no such setting (did you mean budget?)"),
        ("learn.ppo.lam=3", "learn.ppo.lam: no such setting"),
        ("roles.P.modle=x", "roles.P.modle: no such setting (did you mean roles.P.model?)"),
        ("budget.zzz=3", "budget.zzz: no such setting"),
        ("budget.rounds=0", "budget.rounds: Input should be greater than or equal to 1 (given: 0)"),
        ("budget.seconds=-1.5", "budget.seconds: Input should be greater than 0 (given: -1.5)"),
        ("retrieval.k=-2", "retrieval.k: Input should be greater than or equal to 1 (given: -2)"),
        ("reward.format_penalty=1", "reward.format_penalty: Input should be less than or equal to 0 (given: 1)"),
        ("sampling.top_p=nan", "sampling.top_p: Input should be less than or equal to 1 (given: nan)"),
        ("backbone.dtype=float8", "backbone.dtype: Input should be 'auto', 'float32' or 'bfloat16' (given: 'float8')"),
        ("roles.QR.threads=-1", "roles.QR.threads: Input should be greater than or equal to 0 (given: -1)"),
        ("seed", "override 'seed' is not of the form section.field=value"),
        ("=3", "override '=3' is not of the form section.field=value"),
        ("team.extensions=a.py", "team.extensions: it takes a list: [\"a.py\"] (given: 'a.py')"),
        ("seed.x=3", "seed: Input should be a valid integer (given: {'x': 3})"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_in_one_line(override: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert str(caught.value) == complaint


def test_a_role_with_a_model_of_its_own_may_name_a_folder_that_looks_like_a_number() -> None:
    config = load_config(overrides=["roles.QR.model=7", "roles.QR.threads=7", "roles.QR.adapter=7.5"])
    assert config.roles["QR"] == BackboneConfig(model="7", threads=7, adapter=Path("7.5"))


def test_an_override_inside_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"override 'seed.x=3': seed is not a section"):
        load_config(overrides=["seed=1", "seed.x=3"])


def test_a_bad_file_is_named_with_its_setting(tmp_path: Path) -> None:
    path = tmp_path / "jade.toml"
    path.write_text("[budget]\nrounds = -1\ndepht = 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    lines = str(caught.value).split("; ")
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in lines] == ["budget.rounds", "budget.depht"]


@pytest.mark.parametrize("content", [b"not = = toml", b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = " + b"9" * 5000])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "jade.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"jade\.toml is not TOML"):
        load_config(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config .*absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml")


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 1  # type: ignore[misc]


def all_sections() -> list[type[Section]]:
    return [each for _, each in inspect.getmembers(jade.config, inspect.isclass) if issubclass(each, Section)]


@pytest.mark.parametrize("section", all_sections(), ids=lambda section: section.__name__)
def test_every_plain_setting_explains_itself(section: type[Section]) -> None:
    silent = [
        name
        for name, field in section.model_fields.items()
        if not field.description
        and not (inspect.isclass(field.annotation) and issubclass(field.annotation, (Section, int)))
    ]
    assert silent == []
