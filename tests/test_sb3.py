"""Stable-Baselines3: the callback, the values, saving, and the engine."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from probe import member
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import procurl
from procurl.errors import CheckpointError, ConfigError
from procurl.integrations import sb3_engine
from procurl.integrations.sb3 import CurriculumCallback
from procurl.integrations.sb3_values import CriticValue
from procurl.students import nets

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def space():
    return procurl.task_space([0.0, 0.0], [1.0, 1.0], ["a", "b"], target=[1.0, 1.0], pool_size=50, n_targets=4)


def make_env(space, n_envs=3, subprocesses=False, continuous=False):
    kind = SubprocVecEnv if subprocesses else DummyVecEnv
    return make_vec_env(lambda: member(space, continuous), n_envs=n_envs, vec_env_cls=kind)


class Spy(procurl.Curriculum):
    """Remembers what was handed out and what came back."""

    def __init__(self, *args, **kwargs):
        self.handed, self.recorded = [], []
        super().__init__(*args, **kwargs)

    def next(self):
        self.handed.append(super().next())
        return self.handed[-1]

    def record(self, task, **outcome):
        super().record(task, **outcome)
        self.recorded.append((task, outcome))


def curriculum_for(space, teacher="procurl-target", every=48, n_envs=3, **arguments):
    return Spy(procurl.make_teacher(teacher, space), every=every, n_envs=n_envs, **arguments)


def ppo(env, **changed):
    return PPO(
        "MlpPolicy", env, **{"n_steps": 16, "batch_size": 16, "n_epochs": 2, "device": "cpu", "seed": 0, **changed}
    )


def off_policy():
    """Each algorithm has its own: some write into them."""
    return {"learning_starts": 50, "buffer_size": 500, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}


ALGORITHMS = {
    "PPO": (PPO, False, {"n_steps": 16, "batch_size": 16, "n_epochs": 2}),
    "A2C": (A2C, False, {"n_steps": 16}),
    "DQN": (DQN, False, off_policy()),
    "SAC": (SAC, True, off_policy()),
    "TD3": (TD3, True, off_policy()),
}


@pytest.mark.parametrize(
    ("name", "subprocesses"),
    [
        ("PPO", True),
        ("DQN", False),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("PPO", False), ("DQN", True))),
    ],
)
def test_every_episode_is_recorded_under_its_own_context_from_the_first_on(space, name, subprocesses):
    algorithm, continuous, arguments = ALGORITHMS[name]
    env = make_env(space, 3, subprocesses, continuous)
    curriculum = curriculum_for(space)
    callback = CurriculumCallback(curriculum, env, probe=member(space, continuous))
    model = algorithm("MlpPolicy", env, device="cpu", seed=0, **arguments)
    model.learn(240, callback=callback)
    env.close()

    finished = [(task, o) for task, o in curriculum.recorded if o.get("finished", True)]
    assert len(finished) > 40 and curriculum.updates >= 4
    for task, outcome in finished:
        assert np.isclose(outcome["ret"], task.context.sum(), atol=1e-6)
        assert 1 <= outcome["length"] <= 6
    firsts = {task.seed for task in curriculum.handed[:3]}
    assert firsts <= {task.seed for task, _ in finished}, "the first episodes already were the teacher's"
    seeds = [task.seed for task, _ in finished]
    assert len(set(seeds)) == len(seeds), "no episode was recorded twice"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_any_algorithm_learns_with_a_curriculum(space, name):
    algorithm, continuous, arguments = ALGORITHMS[name]
    env = make_env(space, 2, continuous=continuous)
    curriculum = curriculum_for(space, n_envs=2, every=32)  # as in most tests: every period compiles anew
    callback = CurriculumCallback(curriculum, env, probe=member(space, continuous))
    algorithm("MlpPolicy", env, device="cpu", seed=0, **arguments).learn(128, callback=callback)
    assert curriculum.updates >= 3
    assert all(np.isclose(o["ret"], t.context.sum()) for t, o in curriculum.recorded if o.get("finished", True))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_values_are_the_critics_at_the_first_observation(space, name):
    algorithm, continuous, arguments = ALGORITHMS[name]
    env = make_env(space, 1, continuous=continuous)
    model = algorithm("MlpPolicy", env, device="cpu", seed=0, **arguments)
    tasks = jax.tree.map(np.asarray, space.targets)
    given = CriticValue(model, member(space, continuous))(tasks)

    probe = member(space, continuous)
    for i in range(len(tasks.seed)):
        obs, _ = probe.reset(options={"context": tasks.context[i], "task_seed": int(tasks.seed[i])})
        seen = torch.as_tensor(obs[None])
        with torch.no_grad():
            if name in ("PPO", "A2C"):
                expected = model.policy.predict_values(seen)
            elif name == "DQN":
                action, _ = model.predict(obs, deterministic=True)
                expected = model.q_net(seen)[0, action]
            else:
                action = torch.as_tensor(model.predict(obs, deterministic=True)[0])[None]  # bounds are -1 and 1
                expected = min(q for q in model.critic(seen, action))
        assert np.isclose(given[i], float(expected), atol=1e-5)


def test_values_and_returns_see_through_normalisation(space):
    env = VecNormalize(make_env(space, 2), gamma=0.9)
    curriculum = curriculum_for(space, n_envs=2, every=32)
    model = ppo(env, gamma=0.9)
    model.learn(256, callback=CurriculumCallback(curriculum, env, probe=member(space)))
    assert all(np.isclose(o["ret"], t.context.sum()) for t, o in curriculum.recorded if o["finished"])
    tasks = jax.tree.map(np.asarray, space.targets)
    obs = np.stack(
        [member(space).reset(options={"context": c, "task_seed": int(s)})[0] for c, s in zip(*tasks[:2], strict=True)]
    )
    with torch.no_grad():
        normalised = model.policy.predict_values(torch.as_tensor(env.normalize_obs(obs)).float())[:, 0].numpy()
    assert np.allclose(
        CriticValue(model, member(space))(tasks), normalised * np.sqrt(env.ret_rms.var + env.epsilon), rtol=1e-4
    )


def test_advantages_are_means_over_each_episodes_own_steps(space):
    """PLR's score, by hand from the rollout buffer."""
    env = make_env(space, 2)
    curriculum = curriculum_for(space, "plr", n_envs=2, every=32)
    checked = []

    class Check(CurriculumCallback):
        def _on_rollout_end(self):
            advantages, starts = self.model.rollout_buffer.advantages, self.model.rollout_buffer.episode_starts
            before = len(curriculum.recorded)
            super()._on_rollout_end()
            new = [o for _, o in curriculum.recorded[before:] if o["finished"]]
            expected = []
            for i in range(2):
                cuts = [int(t) for t in np.flatnonzero(starts[:, i])]
                for a, b in zip(cuts, [*cuts[1:], None], strict=True):
                    expected.append(advantages[a:b, i].mean())
                if cuts[0] > 0:
                    expected.append(advantages[: cuts[0], i].mean())
            assert all(np.isclose(o["advantage"], expected).any() for o in new) and new
            checked.append(len(new))

    ppo(env).learn(128, callback=Check(curriculum, env))
    assert len(checked) == 4


def test_a_regressor_learns_from_the_episodes(space):
    env = make_env(space, 2)
    value = procurl.ReturnRegressor(space, every=20, hidden=(32,))
    curriculum = curriculum_for(space, n_envs=2, unit="episodes", every=20)
    ppo(env).learn(512, callback=CurriculumCallback(curriculum, env, value=value))
    assert value.fits >= 3 and curriculum.updates >= 3
    context = np.array([[0.1, 0.1], [0.9, 0.9]], np.float32)
    low, high = value(procurl.Task(context, np.zeros(2, np.int32), np.zeros(2, np.int32)))
    assert high > low + 0.5


def test_learning_in_two_calls_and_anew(space):
    env = make_env(space, 2)
    curriculum = curriculum_for(space, n_envs=2, every=32)
    callback = CurriculumCallback(curriculum, env, probe=member(space))
    model = ppo(env)
    model.learn(64, callback=callback)
    model.learn(64, callback=callback, reset_num_timesteps=False)  # environments go on
    model.learn(64, callback=callback)  # environments are reset
    finished = [(t, o) for t, o in curriculum.recorded if o["finished"]]
    assert curriculum.updates == 6 and all(np.isclose(o["ret"], t.context.sum()) for t, o in finished)


class TestSaving:
    """A saved run is loaded by the script that made it."""

    @staticmethod
    def made(space, name="PPO", normalise=False, teacher="procurl-target", **changed):
        algorithm, continuous, arguments = ALGORITHMS[name]
        env = make_env(space, 2, continuous=continuous)
        env = VecNormalize(env) if normalise else env
        curriculum = curriculum_for(space, teacher, n_envs=2, every=32)
        callback = CurriculumCallback(curriculum, env, probe=member(space, continuous))
        return algorithm("MlpPolicy", env, device="cpu", seed=0, **{**arguments, **changed}), callback, curriculum

    @pytest.mark.parametrize(("name", "normalise"), [("PPO", False), ("PPO", True), ("DQN", False), ("SAC", False)])
    def test_it_goes_on_exactly(self, space, tmp_path, name, normalise):
        model, callback, curriculum = self.made(space, name, normalise)
        model.learn(160, callback=callback)
        path = callback.save(tmp_path / "run.safetensors", model)
        again, other_callback, other = self.made(space, name, normalise)
        other_callback.load(path, again)

        assert again.num_timesteps == model.num_timesteps and again._n_updates == model._n_updates
        for a, b in zip(model.policy.state_dict().values(), again.policy.state_dict().values(), strict=True):
            assert torch.equal(a, b)
        optimisers = [
            (m.critic.optimizer if name == "SAC" else m.policy.optimizer).state_dict() for m in (model, again)
        ]
        assert optimisers[0]["state"] and all(
            torch.equal(optimisers[0]["state"][k][key], optimisers[1]["state"][k][key])
            for k in optimisers[0]["state"]
            for key in optimisers[0]["state"][k]
        )
        if name in ("DQN", "SAC"):
            buffers = [m.replay_buffer for m in (model, again)]
            assert buffers[0].pos == buffers[1].pos > 50
            assert np.array_equal(*(b.observations[: b.pos] for b in buffers))
        if normalise:
            assert np.array_equal(*(m.env.obs_rms.mean for m in (model, again)))

        # the episodes that were running begin anew, those that lay ready come next, then the queue goes on
        again.learn(64, callback=other_callback, reset_num_timesteps=False)
        running, ready = callback._dealer.playing, callback._dealer.ready
        played = {t.seed for t, o in other.recorded}
        assert {t.seed for t in running} <= played and {t.seed for t in ready} <= played
        following = [curriculum.next() for _ in range(2)]
        handed = other.handed[2:4]  # the first two were handed out before the file was loaded
        assert [t.seed for t in handed] == [t.seed for t in following]
        assert other.updates > curriculum.updates
        assert all(np.isclose(o["ret"], t.context.sum()) for t, o in other.recorded if o.get("finished", True))

    def test_a_regressor_is_saved_with_it(self, space, tmp_path):
        def made():
            env = make_env(space, 2)
            value = procurl.ReturnRegressor(space, every=17, hidden=(8,), epochs=5)
            return ppo(env), CurriculumCallback(curriculum_for(space, n_envs=2, every=32), env, value=value)

        model, callback = made()
        model.learn(160, callback=callback)
        path = callback.save(tmp_path / "run.safetensors", model)
        again, other = made()
        other.load(path, again)
        assert other.value.fits == callback.value.fits >= 2 and len(other.value._returns) > 0
        jax.tree.map(np.testing.assert_array_equal, callback.value.state_dict(), other.value.state_dict())

    def test_it_saves_by_itself(self, space, tmp_path):
        env = make_env(space, 2)
        path = tmp_path / "run.safetensors"
        callback = CurriculumCallback(
            curriculum_for(space, "iid", n_envs=2, every=32), env, save_path=path, save_every=64
        )
        ppo(env).learn(160, callback=callback)
        model, callback, _ = self.made(space, teacher="iid")
        callback.load(path, model)
        assert model.num_timesteps == 128

    def test_a_model_without_its_curriculum_is_refused(self, space, tmp_path):
        model, callback, _ = self.made(space)
        model.learn(64, callback=callback)
        model.save(tmp_path / "model.zip")
        fresh, new_callback, _ = self.made(space)
        loaded = PPO.load(tmp_path / "model.zip", env=new_callback.env, device="cpu")
        with pytest.raises(CheckpointError, match="has played 64 steps, its curriculum 0: .*callback.load"):
            loaded.learn(64, callback=new_callback, reset_num_timesteps=False)
        with pytest.raises(CheckpointError, match="cannot be read"):
            new_callback.load(tmp_path / "model.zip", fresh)

    def test_a_curriculum_without_its_model_is_refused(self, space, tmp_path):
        model, callback, curriculum = self.made(space)
        curriculum.save(tmp_path / "c.safetensors")
        with pytest.raises(CheckpointError, match="a curriculum without a model; nothing was loaded"):
            callback.load(tmp_path / "c.safetensors", model)

    def test_another_space_teacher_algorithm_or_network_is_refused(self, space, tmp_path):
        model, callback, _ = self.made(space)
        model.learn(64, callback=callback)
        path = callback.save(tmp_path / "run.safetensors", model)
        wider = procurl.task_space([0.0, 0.0], [1.0, 2.0], ["a", "b"], target=[1.0, 1.0], pool_size=50, n_targets=4)
        for made, message in (
            (self.made(wider), "space.*high"),
            (self.made(space, teacher="procurl-unif"), "teacher"),
            (self.made(space, "A2C"), "algorithm: 'PPO' there"),
            (self.made(space, policy_kwargs={"net_arch": [8]}), "another model; nothing was loaded: policy"),
        ):
            other, other_callback, curriculum = made
            before = [p.clone() for p in other.policy.parameters()]
            with pytest.raises(CheckpointError, match=message):
                other_callback.load(path, other)
            assert all(torch.equal(a, b) for a, b in zip(before, other.policy.parameters(), strict=True))
            assert curriculum.updates == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda s: CurriculumCallback(curriculum_for(s, "iid", n_envs=4), make_env(s)),
            "for 4 environments, this one has 3",
        ),
        (
            lambda s: CurriculumCallback(curriculum_for(s), make_env(s), value="critic"),
            "first observations of tasks: give",
        ),
        (
            lambda s: CurriculumCallback(curriculum_for(s), make_env(s), value="critics"),
            "unknown source of values 'critics'",
        ),
        (lambda s: CurriculumCallback(curriculum_for(s, n_envs=1), make_vec_env("CartPole-v1")), "take no tasks: wrap"),
        (lambda s: CurriculumCallback(curriculum_for(s, n_envs=1), member(s)), "model.get_env"),
    ],
)
def test_bad_arguments_are_refused(space, make, message):
    with pytest.raises(ConfigError, match=message):
        make(space)


@pytest.mark.parametrize(
    ("teacher", "name", "every", "message"),
    [
        (
            "plr",
            "PPO",
            20,
            r"PLR scores tasks by advantages.* with PPO, every=20 .*Use Curriculum\(..., every=48, unit",
        ),
        ("plr", "DQN", 48, "PLR scores tasks by advantages.* with DQN, .* it gets none. Use PPO or A2C"),
    ],
)
def test_a_period_that_cannot_work_is_refused(space, teacher, name, every, message):
    algorithm, continuous, arguments = ALGORITHMS[name]
    env = make_env(space, 3, continuous=continuous)
    callback = CurriculumCallback(curriculum_for(space, teacher, every), env)
    with pytest.raises(ConfigError, match=message):
        algorithm("MlpPolicy", env, device="cpu", **arguments).learn(100, callback=callback)


def test_a_model_with_another_environment_is_refused(space):
    callback = CurriculumCallback(curriculum_for(space, "iid"), make_env(space))
    other = make_env(space)
    for i in range(3):
        other.env_method("set_next_task", [0.5, 0.5], 7, indices=[i])
    with pytest.raises(ConfigError, match="the model trains in another environment than the one"):
        ppo(other).learn(48, callback=callback)


def test_without_the_package_the_extra_is_named():
    code = "import sys; sys.modules['stable_baselines3'] = None; import procurl.integrations.sb3"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert "pip install 'procurl[sb3]'" in done.stderr


class TestEngine:
    """Our settings with Stable-Baselines3's PPO."""

    CONFIG = procurl.Config(ppo=procurl.PPO(n_steps=256, n_envs=8, batch_size=64, epochs=2), evaluate_every=2)

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory):
        """Environment, teacher, and a run of two seeds with its folder and the steps that it reported."""
        env, space = procurl.make("point-mass-1t")
        teacher = procurl.make_teacher("procurl-target", space)
        seen, out = [], tmp_path_factory.mktemp("sb3") / "run"
        arguments = {"seeds": 2, "steps": 1024, "out": out, "callback": lambda p: seen.append(p.steps)}
        return env, teacher, sb3_engine.train(env, teacher, cls.CONFIG, **arguments), out, seen

    def test_a_run_is_a_result_like_any_other(self, whole):
        _, _, result, out, seen = whole
        assert result.status == "finished" and seen == [512, 1024] * 2 and result.steps.tolist() == [0, 512, 1024]
        again = procurl.load_result(out)
        assert again.config["engine"] == "sb3" and again.provenance["stable-baselines3"]
        assert again.ret.shape == (2, 3) and again.trace["task_context"].shape[:2] == (2, 4)
        assert again.trace["started"].sum() > 10 and np.isfinite(again.trace["loss_value"]).all()
        assert again.trace["finite"].all() and again.trace["inside"].all()
        policy = procurl.load_policy(out, seed=1)
        assert policy.predict(np.zeros(7)).shape == (2,)

    def test_every_rollout_is_a_period(self):
        """Few tasks: the same one is often played by two environments at once, and lies ready for a third."""
        env, space = procurl.make("point-mass-1t")
        few = jax.tree.map(lambda x: x[:2], space.pool)
        teacher = procurl.make_teacher("iid", dataclasses.replace(space, pool=few))
        learns_little = dataclasses.replace(self.CONFIG.ppo, epochs=1, batch_size=256)
        config = procurl.Config(ppo=learns_little, evaluate_every=40)
        result = sb3_engine.train(env, teacher, config, steps=40 * 256)
        assert result.status == "finished" and result.trace["started"].shape == (1, 40)

    @pytest.mark.slow
    def test_finished_seeds_are_kept_when_a_run_is_cut(self, whole, tmp_path):
        env, teacher, whole, *_ = whole
        calls = []

        def cut(progress):
            calls.append(progress)
            if len(calls) == 3:
                raise KeyboardInterrupt

        arguments = {"seeds": 2, "steps": 1024, "out": tmp_path / "run"}
        with pytest.raises(KeyboardInterrupt):
            sb3_engine.train(env, teacher, self.CONFIG, **arguments, callback=cut)
        other = procurl.make_teacher("target", teacher.space)
        with pytest.raises(procurl.errors.RunFolderError, match="seeds of another run"):
            sb3_engine.train(env, other, self.CONFIG, **arguments)
        result = sb3_engine.train(env, teacher, self.CONFIG, **arguments, callback=lambda p: calls.append(p))
        assert len(calls) == 5, "the first seed was not played again"
        assert np.array_equal(whole.ret, result.ret)
        assert all(np.array_equal(whole.params[k], result.params[k]) for k in whole.params)

    @pytest.mark.parametrize("setting", ["point-mass-1t", "minigrid"])
    def test_weights_mean_the_same_here_and_there(self, setting):
        env, _ = procurl.make(setting)
        config = procurl.Config(ppo=procurl.PPO(n_steps=64, n_envs=4, batch_size=32, shared=(16, 8), separate=(8,)))
        teacher = procurl.make_teacher("iid", procurl.make(setting)[1])
        model = sb3_engine._Run(env, teacher, config, 0, 1).model
        obs = np.random.default_rng(0).normal(size=(5, env.obs_size)).astype(np.float32)
        params = sb3_engine.params_of(model)
        with torch.no_grad():
            seen = torch.as_tensor(obs)
            assert np.allclose(model.policy.predict_values(seen)[:, 0], nets.value(params, obs), atol=1e-5)
            latent = model.policy.mlp_extractor.forward_actor(model.policy.extract_features(seen))
            assert np.allclose(model.policy.action_net(latent), nets.policy(params, obs), atol=1e-5)

    def test_its_own_settings_only(self):
        env, _ = procurl.make("point-mass-1t")
        space = procurl.task_space([0.0] * 3, [1.0] * 3, target=[1.0] * 3)
        with pytest.raises(ConfigError, match="use CurriculumCallback"):
            sb3_engine.train(env, procurl.make_teacher("iid", space), self.CONFIG)


def test_the_page_runs_as_printed(tmp_path, monkeypatch):
    page = (Path(__file__).parent.parent / "docs/integrations/sb3.md").read_text()
    monkeypatch.chdir(tmp_path)
    names = {}
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        for printed, shorter in {
            "learn(10_000": "learn(2048",
            "n_steps=256": "n_steps=64",
            'out="runs/poles"': 'out="runs/poles", n_evaluated=2',
        }.items():
            snippet = snippet.replace(printed, shorter)
        exec(snippet, names)
    assert names["model"].num_timesteps == 4096 and procurl.load_result("runs/poles").trace["started"].shape == (1, 2)


# --- run folders and evaluation ---


def test_a_run_in_its_folder_with_evaluations(space, tmp_path):
    env = make_env(space, 2)
    callback = CurriculumCallback(
        space, env, probe=member(space), teacher="iid", seed=3, evaluate_every=64, n_evaluated=2, out=tmp_path / "run"
    )
    model = ppo(env)
    model.learn(200, callback=callback)
    logged = callback.logger.name_to_value
    result = procurl.load_result(tmp_path / "run")
    assert result.status == "finished" and result.seeds.tolist() == [3]
    assert result.provenance["engine"] == "Stable-Baselines3's PPO"
    assert result.steps.tolist()[:3] == [64, 128, 192] and result.steps[-1] == model.num_timesteps
    expected = np.asarray(space.held_out.context)[:2].sum(axis=1)
    np.testing.assert_allclose(result.task_ret[0], np.tile(expected, (len(result.steps), 1)), rtol=1e-5)
    assert logged["target/return"] == pytest.approx(expected.mean())
    model.learn(64, callback=callback, reset_num_timesteps=False)
    assert procurl.load_result(tmp_path / "run").steps[-1] == model.num_timesteps


def test_what_is_taught_is_in_the_models_own_log(space):
    env = make_env(space, 2)
    callback = CurriculumCallback(curriculum_for(space, n_envs=2, every=32), env, probe=member(space))
    seen = {}

    class Kept(KVWriter):
        def write(self, key_values, key_excluded, step=0):
            seen.update(key_values)

        def close(self):
            pass

    model = ppo(env)
    model.set_logger(Logger(None, [Kept()]))
    model.learn(64, callback=callback)
    for name in ("effective_share", "target_distance", "value_mean", "value_high", "value_learnable_targets"):
        assert f"curriculum/{name}" in seen


def test_a_new_model_does_not_go_on_with_another_ones_curriculum(space, tmp_path):
    def begun():
        env = make_env(space, 2)
        curriculum = procurl.Curriculum(procurl.IID(space), every=32, n_envs=2)
        return env, CurriculumCallback(curriculum, env, out=tmp_path / "run", save_path=tmp_path / "model.safetensors")

    env, callback = begun()
    model = ppo(env)
    model.learn(96, callback=callback)
    callback.save(tmp_path / "model.safetensors", model)
    callback.curriculum.close()
    env, callback = begun()
    fresh = ppo(env)
    with pytest.raises(CheckpointError, match=r"holds a curriculum of 3 updates, and this model is new: load what"):
        fresh.learn(96, callback=callback)
    callback.curriculum.close()
    env, callback = begun()
    fresh = ppo(env)
    callback.load(tmp_path / "model.safetensors", fresh)
    fresh.learn(96, callback=callback, reset_num_timesteps=False)
    assert procurl.load_result(tmp_path / "run").trace["started"].shape[1] == 6


def test_evaluation_needs_an_environment_of_its_own(space):
    with pytest.raises(ConfigError, match="evaluate_every: the model plays in an environment of its own: give probe="):
        CurriculumCallback(space, make_env(space, 2), evaluate_every=10)


def test_a_curriculum_has_its_own_teacher(space):
    with pytest.raises(ConfigError, match="teacher and seed are for a task space"):
        CurriculumCallback(curriculum_for(space, n_envs=2), make_env(space, 2), teacher="iid")
