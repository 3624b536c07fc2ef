"""What can be known to be wrong before any work is done. Every complaint names the field.

Settings of the wrong kind or range are refused when a config is loaded; here is what takes files, roles and other
sections into account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jade.backbone.open import is_url
from jade.backbone.trust import check_adapter
from jade.backbone.weights import check_named
from jade.config import Config
from jade.engine.probe import probe_index
from jade.errors import ConfigError, IndexUnusable, WeightsMissing
from jade.learn.credit.rules import AMONG_ROLLOUTS, find_rule
from jade.learn.measure import find_measure
from jade.learn.monitor.trackers import find_tracker
from jade.learn.questions import check_apart, read_question_files
from jade.learn.ranks import num_ranks
from jade.learn.warmstart.gold import lesson_of
from jade.learn.warmstart.leaks import drop_leaks
from jade.retrieval.base import Retriever
from jade.retrieval.manifest import read_manifest
from jade.retrieval.shards import is_sharded, read_shards
from jade.reward.metrics import is_yes_no
from jade.team.crew import check_own_backbones
from jade.team.team import Team, build_team
from jade.types import Question

Files = list[list[Question]]
Say = Callable[[str], None]
LOW_SHARE = 0.2
"""Of the evidence pages that are searched for by their titles; an index of the right corpus has nearly all."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a training run works with, read and found to be sound."""

    team: Team
    train: Files
    dev: Files


def keep_quiet(text: str) -> None:
    """Where nobody listens: one of several processes that read the same."""


def check_training(config: Config, say: Say = keep_quiet) -> Material:
    """Everything `jade train` needs, or the first complaint."""
    team = check_team(config, config.learn.train_roles, "learn.train_roles")
    check_roles(team, config.learn.role_temperature, "learn.role_temperature")
    check_roles(team, config.learn.ppo.role_entropy, "learn.ppo.role_entropy")
    check_roles(team, config.learn.ppo.role_weight, "learn.ppo.role_weight")
    _check_busy(team, config.learn.train_roles)
    _check_credit(config)
    _say_idle_critic(config, say)
    _check_prices(config)
    _check_ahead(config)
    for name in config.learn.trackers:
        find_tracker(name)
    learn = config.learn
    if not learn.questions:
        raise ConfigError("learn.questions is empty: name the question files to train on")
    train = read_question_files("learn.questions", learn.questions, learn.per_file, learn.part)
    dev = read_question_files("learn.dev", learn.dev)
    held_out = read_question_files("learn.held_out", learn.held_out)
    if not learn.yes_no:
        train = _without_yes_no(learn.questions, train)
    train = _apart(config, train, dev, held_out, say)
    return Material(team, train, [file[: learn.dev_questions] for file in dev])


def _without_yes_no(paths: Sequence[Path], train: Files) -> Files:
    kept = [[question for question in file if not is_yes_no(question.answers)] for file in train]
    for path, file in zip(paths, kept, strict=True):
        if not file:
            raise ConfigError(
                f"learn.yes_no: every question of {path} is one for yes or no; leave the file out of learn.questions"
            )
    return kept


def _apart(config: Config, train: Files, dev: Files, held_out: Files, say: Say) -> Files:
    """Training questions that share nothing with what is measured on; how many do is said, dropped or not."""
    measured = {"learn.dev": dev, "learn.held_out": held_out}
    if config.learn.overlap == "refuse":
        for setting, files in measured.items():
            check_apart("learn.questions", _all(train), _all(files), setting)
    lessons = [[lesson_of(question) for question in file] for file in train]
    forbidden = [*_all(dev), *_all(held_out)]
    _, leaks = drop_leaks([lesson for file in lessons for lesson in file], forbidden)
    if config.learn.overlap == "refuse":
        if leaks.dropped:
            say(
                f"{leaks.dropped.total()} of {leaks.num_lessons} training questions share a hop or evidence with what "
                'is measured on (learn.dev, learn.held_out); learn.overlap = "drop" leaves them out'
            )
        return train
    if leaks.dropped:
        say(str(leaks))
    kept = [[lesson.question for lesson in drop_leaks(file, forbidden)[0]] for file in lessons]
    for path, file in zip(config.learn.questions, kept, strict=True):
        if not file:
            raise ConfigError(
                f"learn.overlap: every question of {path} shares something with learn.dev or learn.held_out and would "
                "be dropped; leave the file out of learn.questions"
            )
    return kept


def _all(files: Files) -> list[Question]:
    return [question for file in files for question in file]


def check_team(config: Config, roles: Sequence[str], setting: str) -> Team:
    """A team whose named roles can all be trained, and an index to search."""
    team = build_team(config.team)
    check_index(config.retrieval.index)
    check_own_backbones(team, config.roles)
    check_weights(config)
    check_roles(team, roles, setting)
    if not roles:
        raise ConfigError(f"{setting} is empty: name at least one of {', '.join(team.prompts)}")
    apart = [code for code in roles if code in config.roles]
    if apart:
        raise ConfigError(f"{setting}: {apart[0]} speaks with a backbone of its own (roles.{apart[0]}): leave it out")
    sharing = [code for code, backbone in config.roles.items() if backbone.model == config.backbone.model]
    if sharing:
        raise ConfigError(
            f"roles.{sharing[0]}: would share the model that is being trained; leave it out, and freeze it by {setting}"
        )
    if is_url(config.backbone.model):
        raise ConfigError(f"backbone.model: {config.backbone.model} is a server; only a local model can be trained")
    return team


def check_roles(team: Team, codes: Iterable[str], setting: str) -> None:
    unknown = [code for code in codes if code not in team.prompts]
    if unknown:
        raise ConfigError(f"{setting}: {unknown[0]!r} is no role; there are {', '.join(team.prompts)}")


def _check_busy(team: Team, roles: Sequence[str]) -> None:
    """At least one of the trained roles must have work: a team works, or a role that works alone, never both."""
    if not any((team.role(code).kind == "alone") == bool(team.left_to) for code in roles):
        worker = team.left_to or "the team"
        raise ConfigError(f"learn.train_roles: {', '.join(roles)} have nothing to do: {worker} works (team.workflows)")


def say_untrained(config: Config, say: Say) -> None:
    """Name in one line the roles that work and are not trained: a role of the user's own is not in the default list."""
    team = build_team(config.team)
    untrained = [code for code in _working(team) if code not in config.learn.train_roles]
    if untrained:
        say(f"not trained, though of the team: {', '.join(untrained)} (learn.train_roles names those that are)")


def _working(team: Team) -> list[str]:
    """The roles that the plans of this team may call."""
    if team.left_to:
        return [team.left_to]
    choices = [team.legal(child=child).plans for child in (False, True)]
    called = {module for plans in choices for plan in plans for module in plan.modules} | {team.summariser.code}
    if any(len(plans) > 1 for plans in choices):
        called.add(team.planner.code)
    return [code for code in team.prompts if code in called]


async def say_if_unfit(questions: Sequence[Question], retriever: Retriever, index: str, say: Say) -> None:
    """Say so where the index seems to be of other documents than the questions: no team could answer them from it."""
    probe = await probe_index(questions, retriever)
    if probe.share < LOW_SHARE:
        say(
            f"retrieval.index: {index} has {probe.num_found} of {len(probe.titles)} evidence pages of the questions "
            f"(the first is {probe.titles[0]!r}); is it the index of their corpus?"
        )


def check_index(index: str) -> None:
    if not index:
        raise ConfigError("retrieval.index is not set: give an index folder (jade index) or a retrieval server's URL")
    if is_url(index):
        return
    folder = Path(index)
    if not folder.is_dir():
        raise ConfigError(f"retrieval.index: {index} does not exist; make it with jade index")
    with _named("retrieval.index"):
        read_shards(folder) if is_sharded(folder) else read_manifest(folder)


def check_weights(config: Config) -> None:
    """Models and adapters that lie on this machine. What a hub has is known when it is fetched."""
    own = {f"roles.{code}": backbone for code, backbone in config.roles.items()}
    for section, backbone in ({"backbone": config.backbone} | own).items():
        with _named(f"{section}.model"):
            if not is_url(backbone.model):
                check_named(backbone.model)
        with _named(f"{section}.adapter"):
            if backbone.adapter is not None:
                check_adapter(backbone.adapter)


@contextmanager
def _named(field: str) -> Iterator[None]:
    """What is wrong with files is said of the setting that names them."""
    try:
        yield
    except (WeightsMissing, IndexUnusable) as error:
        raise ConfigError(f"{field}: {error}") from None


def _check_credit(config: Config) -> None:
    learn = config.learn
    find_rule(learn.credit.rule)
    find_measure(config.reward.outcome)
    rule = learn.credit.rule
    if rule in AMONG_ROLLOUTS and learn.rollouts < 2:
        raise ConfigError(f"learn.rollouts: {rule} credit compares rollouts and needs at least 2, not {learn.rollouts}")
    if learn.policy.critic == "none" and rule in ("trajectory", "shared"):
        raise ConfigError(f"learn.policy.critic: {rule} credit needs a critic; choose head or separate")


def _say_idle_critic(config: Config, say: Say) -> None:
    critic, rule = config.learn.policy.critic, config.learn.credit.rule
    if rule in AMONG_ROLLOUTS and critic != "none":
        say(f"learn.policy.critic: {rule} credit asks no critic, and this run trains one; none would spare its time")


def _check_prices(config: Config) -> None:
    reward = config.reward
    if reward.dial > 0 and (reward.alpha or reward.beta):
        raise ConfigError("reward.dial: alpha and beta are drawn from it; leave reward.alpha and reward.beta at 0")
    if reward.ramp and reward.dial > 0:
        raise ConfigError(
            "reward.ramp: a dial's prices are paid as they are told to the planner; leave one of the two at 0"
        )
    if reward.mirror and reward.dial == 0:
        raise ConfigError("reward.mirror: needs reward.dial, on which there is another side")
    num = config.learn.rollouts
    if reward.mirror and num < 2:
        raise ConfigError(f"learn.rollouts: with reward.mirror every second is made at the other prices, of {num} none")
    if reward.mirror and config.learn.credit.rule in AMONG_ROLLOUTS and num < 4:
        raise ConfigError(f"learn.rollouts: with reward.mirror each half is compared and needs 2, so 4 and not {num}")
    if reward.effort is not None and reward.dial == 0:
        raise ConfigError("reward.effort: needs reward.dial, or the team never learns what prices mean")
    if reward.untold:
        raise ConfigError("reward.untold: training tells every question its prices, dev measurements too; leave it out")
    if config.team.constrain_plans:
        raise ConfigError("team.constrain_plans: masked plans cannot be learned from; switch it off for training")


def _check_ahead(config: Config) -> None:
    learn = config.learn
    if learn.vllm.urls:
        check_alone(config, "learn.vllm.urls")
    if num_ranks() > 1:
        check_alone(config, f"a run of {num_ranks()} processes")
    if learn.ahead and learn.checkpoint_every == 1:
        raise ConfigError("learn.ahead: nothing is begun across a checkpoint; learn.checkpoint_every must be over 1")
    if learn.ahead and learn.dev and learn.dev_every == 1:
        raise ConfigError("learn.ahead: nothing is begun across a measurement; learn.dev_every must be over 1")


def check_alone(config: Config, what: str) -> None:
    """Refuse `learn.ahead` and `learn.processes` where something else (`what`) spreads the run already: both need a
    single learner that has samplers of its own."""
    for name, value, off in (("ahead", config.learn.ahead, "false"), ("processes", config.learn.processes, "0")):
        if value:
            raise ConfigError(
                f"learn.{name}: needs one learner and samplers of its own beside it, which {what} does not have; "
                f"set {off}"
            )
