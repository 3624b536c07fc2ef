"""The team: its members, their prompts, and the plans it may make.

Built once from the config; a user's own roles and tools come from outside through `register`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from jade.config import TeamConfig
from jade.errors import ConfigError
from jade.outside import load_module
from jade.team.render import ask_first
from jade.team.roles import MEMBERS, OBSERVABLE, Member, RoleKind, RoleSpec, ToolSpec
from jade.team.workflow import Grammar, Module, read_workflow
from jade.types import Action, Observation, Prompt, Role, Workflow

ENTRY_POINTS = "jade.extensions"
_PLAIN = Workflow((Role.RETRIEVAL.value, Role.ANSWERER.value))


@dataclass(frozen=True, slots=True)
class Choices:
    """The plans open to a node, and the same as the planner is shown them."""

    plans: tuple[Workflow, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Team:
    members: Mapping[str, Member]
    prompts: Mapping[str, str]
    """The system text of each role, by code."""
    root_plans: tuple[Workflow, ...] = ()
    """What the planner may choose for the question itself; empty: everything legal."""
    child_plans: tuple[Workflow, ...] = ()
    """The same for sub-questions."""
    constrain_plans: bool = False
    left_to: str = ""
    """The role that works every question alone; empty: the team does, by its workflows."""

    @cached_property
    def grammar(self) -> Grammar:
        return grammar_of(self.members.values())

    @cached_property
    def planner(self) -> RoleSpec:
        return self.only("plan")

    @cached_property
    def summariser(self) -> RoleSpec:
        return self.only("summarise")

    @cached_property
    def alone(self) -> RoleSpec | None:
        return self.role(self.left_to) if self.left_to else None

    def leave_to(self, code: str) -> Team:
        """The same team, whose questions are worked by one role alone."""
        return replace(self, left_to=code)

    def role(self, code: str) -> RoleSpec:
        member = self.members[code]
        assert isinstance(member, RoleSpec), f"{code} is a tool"
        return member

    def legal(self, *, child: bool) -> Choices:
        """The plans open to a node. They follow from the config alone: what is left of a budget is not said."""
        return self._choices[child]

    @cached_property
    def _choices(self) -> tuple[Choices, Choices]:
        of_root, of_child = (chosen or self.grammar.workflows for chosen in (self.root_plans, self.child_plans))
        return Choices(of_root, tuple(map(str, of_root))), Choices(of_child, tuple(map(str, of_child)))

    def plain_plan(self, plans: Iterable[Workflow]) -> Workflow:
        """The stated fallback: retrieve and answer, or else the shortest plan at hand that solves."""
        solving = [plan for plan in plans if not self.grammar.splits(plan)]
        if _PLAIN in solving or not solving:
            return _PLAIN
        return min(solving, key=lambda plan: len(plan.modules))

    def fallback(self, code: str, text: str, seen: Observation) -> Action | None:
        """What runs when a role's output cannot be read."""
        if code == self.planner.code:
            return self.plain_plan(map(read_workflow, seen.legal))
        return self.role(code).fallback(text, seen)

    def render(self, code: str, seen: Observation) -> Prompt:
        """The prompt of one step. The plans are listed only when the planner may not choose freely."""
        free = len(seen.legal) == len(self.grammar.workflows)
        return Prompt(code, self.prompts[code], self.role(code).describe(seen, None if free else seen.legal))

    def only(self, kind: RoleKind) -> RoleSpec:
        """Of planners and summarisers a team has one each; who brings another puts it in the place of ours."""
        specs = [m for m in self.members.values() if isinstance(m, RoleSpec) and m.kind == kind]
        if len(specs) != 1:
            codes = ", ".join(spec.code for spec in specs) or "none"
            raise ConfigError(f"team.extensions: exactly one role of kind {kind!r} is needed, there are: {codes}")
        return specs[0]


@dataclass
class TeamBuilder:
    """What an extension's `register` is handed: add members, or put another in the place of one of ours."""

    members: dict[str, Member] = field(default_factory=dict)
    prompt_texts: dict[str, str] = field(default_factory=dict)

    def add(self, member: Member, prompt_text: str | None = None) -> None:
        """Add a role (with its system text) or a tool. A role's `prompt` file is read when no text is given."""
        if not member.code.isalnum():
            raise ConfigError(f"role code {member.code!r}: use letters and digits only, it stands in workflows")
        unseen = member.sees - OBSERVABLE if isinstance(member, RoleSpec) else ()
        if unseen:
            raise ConfigError(f"role {member.code} sees {min(unseen)!r}: choose from {', '.join(sorted(OBSERVABLE))}")
        self.members[member.code] = member
        if prompt_text is not None:
            self.prompt_texts[member.code] = prompt_text


def build_team(config: TeamConfig) -> Team:
    """The team a config describes; every complaint names the setting."""
    builder = TeamBuilder({str(member.code): member for member in MEMBERS})
    for extension in config.extensions:
        _register(extension, builder)
    # After the extensions, since it may be meant of their roles.
    for code in config.ask_first:
        builder.members[code] = _asked_first(code, builder.members)
    roles = [member for member in builder.members.values() if isinstance(member, RoleSpec)]
    _check_prompts(config.prompts, [role.prompt for role in roles])
    prompts = {role.code: builder.prompt_texts.get(role.code) or read_prompt(role, config.prompts) for role in roles}
    grammar = grammar_of(builder.members.values())
    left_to = _left_to(config, roles)
    root_plans = _plans("team.workflows", () if left_to else config.workflows, grammar)
    child_plans = _plans("team.child_workflows", config.child_workflows, grammar) or root_plans
    team = Team(builder.members, prompts, root_plans, child_plans, config.constrain_plans, left_to)
    _check(team)
    return team


def _asked_first(code: str, members: Mapping[str, Member]) -> RoleSpec:
    role = members.get(code)
    if not isinstance(role, RoleSpec):
        roles = ", ".join(member.code for member in members.values() if isinstance(member, RoleSpec))
        raise ConfigError(f"team.ask_first: {code!r} is no role of the team; choose from {roles}")
    return replace(role, describe=ask_first(role.describe))


def _left_to(config: TeamConfig, roles: Iterable[RoleSpec]) -> str:
    """The role that works alone, where its code stands in the place of all workflows."""
    codes = [role.code for role in roles if role.kind == "alone" and config.workflows == (role.code,)]
    return codes[0] if codes else ""


def _check(team: Team) -> None:
    """Refuse now what would otherwise fail in the middle of every question."""
    for kind in ("plan", "summarise"):
        team.only(kind)
    for member in team.members.values():
        unknown = sorted(member.after - set(team.members))
        if unknown:
            raise ConfigError(f"role {member.code} must come after {unknown[0]!r}, which is no member of the team")


def grammar_of(members: Iterable[Member]) -> Grammar:
    """The plans a set of members can make."""
    modules: dict[str, Module] = {}
    for member in members:
        kind = "work" if isinstance(member, ToolSpec) else member.kind
        if kind == "split" or kind == "work" or kind == "answer":  # spelt out for the type checker
            modules[str(member.code)] = Module(str(member.code), kind, member.after)
    return Grammar(modules)


def _check_prompts(folder: Path | None, names: Sequence[str]) -> None:
    """A misspelt file would be passed over, and the shipped prompt be used in its place."""
    if folder is None:
        return
    if not folder.is_dir():
        raise ConfigError(f"team.prompts: {folder} is not a folder")
    given = sorted(path.name for path in folder.glob("*.md") if path.name.lower() != "readme.md")
    unknown = [name for name in given if name not in names]
    if unknown or not given:
        fault = f"{folder / unknown[0]} is no role's prompt" if unknown else f"{folder} holds no prompts"
        raise ConfigError(f"team.prompts: {fault}; name it one of {', '.join(names)}")


def read_prompt(role: RoleSpec, folder: Path | None = None) -> str:
    """A role's system text: the user's file where there is one of that name, else the shipped one."""
    own = folder / role.prompt if folder else None
    try:
        if own and own.is_file():
            return own.read_text(encoding="utf-8").strip()
        return files("jade.team").joinpath("prompts", role.prompt).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt {role.prompt} of role {role.code} cannot be read: {error}") from None


def _plans(setting: str, plans: Iterable[str], grammar: Grammar) -> tuple[Workflow, ...]:
    workflows = tuple(map(read_workflow, plans))
    for workflow in workflows:
        complaint = grammar.complaint(workflow)
        if complaint:
            raise ConfigError(f"{setting}: {workflow} is not a legal workflow: {complaint}")
    return workflows


def _register(extension: str, builder: TeamBuilder) -> None:
    loaded = _load(extension)
    register = loaded if callable(loaded) else getattr(loaded, "register", None)
    if not callable(register):
        raise ConfigError(f"team.extensions: {extension} has no function register(team)")
    try:
        register(builder)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        complaint = f"{type(error).__name__}: {error}"
        raise ConfigError(f"team.extensions: {extension}: register(team) failed: {complaint}") from error


def _load(extension: str) -> object:
    """An entry point's name, a .py file, or a module's name. Whatever goes wrong inside is the setting's fault."""
    try:
        for point in entry_points(group=ENTRY_POINTS, name=extension):
            return point.load()
        return load_module(extension)
    except (Exception, SystemExit) as error:  # a script that ends itself would end us, without a word
        complaint = f"{type(error).__name__}: {error}"
        raise ConfigError(f"team.extensions: {extension} cannot be loaded: {complaint}") from error
