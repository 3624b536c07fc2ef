"""What stands in the way of a run on a cluster is said in one line, before any work."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from cluster_runs import with_huge_model
from learn_runs import merge

from jade.cli.main import main
from jade.cluster.launch import train_on
from jade.cluster.machine import (
    Machine,
    check_memory,
    check_versions,
    count_weights,
    installed_versions,
    learner_bytes,
    this_machine,
)
from jade.cluster.member import Task
from jade.config import Config, dump_config
from jade.errors import ConfigError
from jade.learn.monitor.show import Silent


def refusal(backend: str, config: Config, folder: Path, address: str | None = None) -> str:
    """What is said, and that nothing was done."""
    with pytest.raises(ConfigError) as raised:
        train_on(backend, Task(config, folder), Silent(), 1, address)
    assert not folder.exists()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_too_little_memory_is_said_before_any_work(config: Config, tmp_path: Path) -> None:
    huge = with_huge_model(config, tmp_path / "huge")
    said = refusal("torchrun", huge, tmp_path / "run")
    assert "1,000,000 million weights" in said
    assert "20,000.0 GB" in said


def test_sharding_lets_a_model_fit_that_one_learner_could_not_hold(config: Config, tiny_model: Path) -> None:
    size = 4 * count_weights(tiny_model)
    machines = [Machine("a", {}, 3 * size), Machine("b", {}, 3 * size)]
    check_memory(config, machines, learners=2, actors=2)
    with pytest.raises(ConfigError, match="GB are free"):
        check_memory(config, machines, learners=1, actors=2)


def test_a_learner_needs_the_whole_of_every_model_while_it_loads(config: Config) -> None:
    settings = {"learn": {"policy": {"critic": "separate"}, "ppo": {"kl_weight": 0.1}}}
    with_three = Config.model_validate(merge(config.model_dump(), settings))
    assert learner_bytes(100, config, learners=8) == 4 * 100
    assert learner_bytes(100, with_three, learners=8) == 3 * 4 * 100
    assert learner_bytes(100, with_three, learners=1) == (2 * 16 + 4) * 100


def test_a_model_that_fits_on_no_gpu_is_refused_unless_learners_have_none(config: Config, tiny_model: Path) -> None:
    num_weights = count_weights(tiny_model)
    machine = Machine("a", {}, 10**12, gpu_bytes=8 * num_weights)
    on_gpu = Config.model_validate(merge(config.model_dump(), {"backbone": {"device": "auto"}}))
    with pytest.raises(ConfigError, match=r"each of 1 learners needs about .* of its GPU") as raised:
        check_memory(on_gpu, [machine], learners=1, actors=1)
    assert "\n" not in str(raised.value)
    check_memory(on_gpu, [machine], learners=2, actors=2)
    check_memory(config, [machine], learners=1, actors=1)


def test_the_drivers_tool_is_asked_for_the_gpus_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nprintf "40000\\n[N/A]\\n81000\\n"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5")
    assert this_machine().gpu_bytes == 81000 << 20
    assert (tmp_path / "asked").read_text().split()[-2:] == ["-i", "2,3,5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert this_machine().gpu_bytes == 0


def test_a_machine_that_does_not_tell_its_memory_is_trusted(config: Config) -> None:
    check_memory(config, [Machine("a", {}, 0)], learners=1, actors=1)


def test_what_is_free_here_is_known_and_a_limit_counts() -> None:
    here = this_machine()
    assert here.free_bytes > 10**8
    assert this_machine(memory_limit=1000).free_bytes == 1000


@pytest.mark.parametrize("package", ["jade-team", "torch", "transformers", "Python"])
def test_a_machine_with_another_version_is_named(package: str) -> None:
    ours = installed_versions()
    other = Machine("node7", ours | {package: "0.0.1"}, 0)
    with pytest.raises(ConfigError, match=rf"machine node7 has {package} 0\.0\.1 and this one has"):
        check_versions(ours, [this_machine(), other])


def test_an_address_is_not_for_torchrun(config: Config, tmp_path: Path) -> None:
    assert "--backend ray" in refusal("torchrun", config, tmp_path / "run", "localhost:6379")


def test_a_run_without_ray_names_the_extra(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(dump_config(config))
    for name in [name for name in sys.modules if name.startswith("jade.cluster.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(sys, "argv", ["jade", "train", str(tmp_path / "run.toml"), "--backend", "ray"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "jade-team[ray]" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


class TestWithRay:
    """Needs ray, and starts none of its own unless it says so."""

    @pytest.fixture(autouse=True)
    def need_ray(self) -> None:
        pytest.importorskip("ray", reason="ray is not installed: pip install 'jade-team[ray]'")

    @pytest.mark.parametrize("address", ["ray://somewhere:10001", "somewhere", "host:port"])
    def test_an_address_that_is_none_is_refused(self, config: Config, tmp_path: Path, address: str) -> None:
        assert f"{address!r} is not HOST:PORT" in refusal("ray", config, tmp_path / "run", address)

    def test_an_address_that_does_not_answer_is_named(self, config: Config, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        assert f"no Ray cluster answers at {address}" in refusal("ray", config, tmp_path / "run", address)

    def test_something_else_at_the_address_is_no_cluster(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("jade.cluster.ray_room.ANSWER_SECONDS", 0.1)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            assert f"no Ray cluster answers at {address}" in refusal("ray", config, tmp_path / "run", address)

    def test_too_few_cores_are_counted(self, config: Config) -> None:
        from jade.cluster.ray_room import grown

        complaint = "2 learners and 1 actors need 3 CPUs and 2 are free"
        with pytest.raises(ConfigError, match=complaint), grown(config, 2, 1, lambda: {"CPU": 2.0}):
            pytest.fail("there is no room")

    def test_where_vllm_does_the_rollouts_every_gpu_can_be_a_learners(self, config: Config) -> None:
        from jade.cluster.ray_room import check_room, num_actors, plan_room

        served = Config.model_validate(merge(config.model_dump(), {"learn": {"vllm": {"urls": ["http://gpu:8000"]}}}))
        assert num_actors(served, 4) == 0
        there_is = {"CPU": 8.0, "GPU": 4.0}
        room = plan_room(served, 4, num_actors(served, 4), there_is)
        check_room(room, there_is)
        assert room.gpus_per_learner == 1.0
        with pytest.raises(ConfigError, match="4 learners and 4 actors need 8 GPUs and 4 are free"):
            check_room(plan_room(config, 4, num_actors(config, 4), there_is), there_is)

    def test_a_cluster_that_grows_is_asked_and_waited_for_and_let_go_again(
        self, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from jade.cluster.ray_room import grown

        monkeypatch.setattr("jade.cluster.ray_room.LOOK_SECONDS", 0.0)
        sizes, asked = iter([0.0, 0.0, 2.0, 3.0]), list[list[dict[str, float]]]()
        waiting = config.model_copy(update={"cluster": config.cluster.model_copy(update={"wait_minutes": 60.0})})
        with grown(waiting, 2, 1, lambda: {"CPU": next(sizes)}, asked.append) as room:
            assert (room.learners, room.actors) == (2, 1)
            assert asked == [[{"CPU": 1.0}] * 3]
        assert asked[1:] == [[]]

    @pytest.mark.slow
    def test_a_worker_with_another_package_version_is_named(self, config: Config, tmp_path: Path) -> None:
        from ray.cluster_utils import Cluster

        info = tmp_path / "other" / "jade_team-9.9.9.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jade-team\nVersion: 9.9.9\n")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        try:
            cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(info.parent)})
            said = refusal("ray", config, tmp_path / "run", cluster.address)
        finally:
            cluster.shutdown()
        assert "has jade-team 9.9.9 and this one has" in said
