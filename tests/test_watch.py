"""Animations: the episodes they show are the student's own, the files can be played, and mistakes are named."""

import dataclasses
import sys

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image

import procurl
import procurl.integrations.gymnasium
from procurl import cli
from procurl.bench.watch import film, watch
from procurl.bench.watch.film import Film
from procurl.errors import ConfigError, MissingExtraError, RunFolderError
from procurl.runs.provenance import describe
from procurl.runs.store.result import Result
from procurl.runs.store.state import named
from procurl.students import ppo, sac

SEEDS = (4, 7)


def students(env, setting):
    """Weights of two students who have learnt nothing; drawn in NumPy, which need not be compiled."""

    def init(key):
        if setting == "bipedal":
            return sac.init(key, env.obs_size, env.action.size, procurl.SAC(hidden=(8,))).networks._asdict()
        return ppo.init_student(key, env, procurl.PPO(shared=(8,), separate=(8,))).params

    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(init, jax.random.key(0))
    return named(jax.tree.map(lambda x: rng.uniform(-0.3, 0.3, (len(SEEDS), *x.shape)).astype(x.dtype), shapes))


def run_of(setting, folder, **env_fields):
    """A run folder with a last evaluation that says: held-out task 5 is the hardest for seed 7, task 2 the easiest."""
    env, space = procurl.make(setting, **env_fields)
    config = describe(env, procurl.make_teacher("iid", space), procurl.preset(setting), SEEDS, 5120)
    n = len(space.held_out.seed)
    tasks = space.pool if setting == "point-mass-1t" else space.held_out  # the targets of 1t are all alike
    final = np.full((2, n), 0.5, np.float32)
    final[1, 5], final[1, 2] = 0.0, 1.0
    final[0] = 0.1
    result = Result(
        config=config, provenance={"status": "finished"}, timing={}, seeds=np.array(SEEDS), steps=np.array([0, 5120]),
        task_ret=np.stack([np.zeros_like(final), final], axis=1), task_success=np.zeros((2, 2, n), np.float32),
        held_out={k: np.asarray(v)[:n] for k, v in tasks.arrays().items()},
        trace={"started": np.zeros((2, 1))}, params=students(env, setting),
    )  # fmt: skip
    return result.save(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    settings = {"point-mass-1t": {"noise": 0.5}, "maze-plane": {}, "minigrid": {}, "bipedal": {"max_steps": 30}}
    return {setting: run_of(setting, home / setting, **fields) for setting, fields in settings.items()}


@pytest.mark.parametrize(
    "setting",
    ["maze-plane", "bipedal", *(pytest.param(s, marks=pytest.mark.slow) for s in ("point-mass-1t", "minigrid"))],
)
def test_every_setting_can_be_watched(runs, setting, tmp_path):
    out = tmp_path / "new" / "a.gif"
    episodes = watch(runs[setting], out, frames=20)
    held_out = procurl.load_result(runs[setting]).held_out
    assert len(episodes) == 3 and all(e.ended for e in episodes)
    for k, episode in enumerate(episodes):
        assert episode.chosen.origin == f"target task {k}"
        np.testing.assert_array_equal(episode.chosen.task.context, held_out["context"][k])
        assert episode.chosen.task.seed == held_out["seed"][k]
    with Image.open(out) as picture:
        assert 5 <= picture.n_frames <= 20 and picture.width < 1000
        first = np.asarray(picture.convert("RGB")).astype(int)
        picture.seek(picture.n_frames - 1)
        assert np.abs(np.asarray(picture.convert("RGB")) - first).max() > 50  # something moved
    assert [p.name for p in out.parent.iterdir()] == ["a.gif"]


IDS = {"point-mass-1t": "procurl/PointMass-v0", "bipedal": "procurl/StumpTracks-v0"}


@pytest.mark.parametrize(
    ("setting", "fields"),
    [("point-mass-1t", {"setting": "point-mass-1t", "noise": 0.5}), ("bipedal", {"max_steps": 30})],
)
def test_the_episodes_are_those_of_the_student_alone(runs, setting, fields, tmp_path):
    """Each task played again by hand, without pictures and without the others."""
    episodes = watch(runs[setting], tmp_path / "a.gif", seed=4, frames=4)
    policy = procurl.load_policy(runs[setting], 4)
    for k, episode in enumerate(episodes):
        env = gymnasium.make(IDS[setting], **fields)
        task = episode.chosen.task
        obs, _ = env.reset(seed=k, options={"context": task.context, "task_seed": task.seed, "task_row": task.row})
        steps, ret, ended = 0, 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(policy.predict(obs))
            steps, ret, ended = steps + 1, ret + float(reward), terminated or truncated
        assert (episode.steps, episode.ret) == (steps, ret)


def test_minigrid_plays_the_layouts_of_the_evaluation(runs, tmp_path):
    (episode,) = watch(runs["minigrid"], tmp_path / "a.gif", episodes=1, frames=2)
    env, space = procurl.make("minigrid")
    first, _ = jax.jit(lambda tasks: env.reset(jax.tree.map(lambda x: x[0], tasks)))(space.held_out)
    first, played = jax.tree.map(np.asarray, (first, episode.env.state))
    assert played.steps == episode.steps > 0
    np.testing.assert_array_equal(np.sort(played.codes & 127), np.sort(first.codes & 127))  # the same things lie about


def test_hardest_and_easiest_follow_the_last_evaluation(runs, tmp_path):
    run, out = runs["point-mass-1t"], tmp_path / "a.gif"

    def chosen(**options):
        return [e.chosen.origin for e in watch(run, out, frames=2, **options)]

    assert chosen(tasks="hardest", episodes=2) == ["target task 5", "target task 0"]  # of seed 7, the better one
    assert chosen(tasks="easiest", episodes=2) == ["target task 2", "target task 0"]
    assert chosen(tasks="hardest", episodes=1, seed=4) == ["target task 0"]
    drawn = chosen(tasks="random")
    assert drawn == chosen(tasks="random") and all(name.startswith("training task") for name in drawn)
    assert drawn != chosen(tasks="random", seed=4)


def test_contexts_of_ones_own(runs, tmp_path):
    episodes = watch(
        runs["point-mass-1t"], tmp_path / "a.gif", contexts=[[-2, 1, 0.5], [3, 0.6, 4]], episodes=2, frames=2
    )
    assert [e.about for e in episodes] == 2 * ["gate position -2.00, gate width 1.00, friction 0.50"] + 2 * [
        "gate position 3.00, gate width 0.60, friction 4.00"
    ]
    assert [e.chosen.task.seed for e in episodes] == [0, 1, 0, 1]
    (episode,) = watch(runs["minigrid"], tmp_path / "a.gif", contexts=[[1, 1, 0.9, 0, 0, 0, 0, 0]], frames=2)
    assert episode.about == "crossing, navigation, goal reaching, lava avoidance"  # the nearest mission


def test_actions_as_in_training_differ_from_the_most_likely_ones(runs, tmp_path):
    def path(deterministic):
        (episode,) = watch(runs["point-mass-1t"], tmp_path / "a.gif", episodes=1, frames=2, deterministic=deterministic)
        return episode.obs.tolist()

    assert path(True) == path(True) and path(False) == path(False) and path(True) != path(False)


def test_panels_tell_what_goes_on(runs, tmp_path):
    (episode,) = watch(runs["maze-plane"], tmp_path / "a.gif", episodes=1, frames=2)
    texts = [line.text for line in episode.panel().caption]
    assert texts[0] == "target task 0" and texts[1].startswith("goal x ") and texts[3] == "tolerance 0.05"
    assert texts[4:] == [f"step {episode.steps}   return {episode.ret:.2f}", "ended without success"]
    episode.success = True
    assert episode.panel().caption[-1].text == "success"
    episode.ended = False
    assert episode.panel().caption[-1].text == "playing"


def test_too_many_frames_are_thinned_evenly():
    movie, taken = Film(10), []
    for step in range(101):
        if movie.wants(step):
            movie.add(np.full((1, 1, 3), step, np.uint8))
            taken.append(step)
    movie.end(np.full((1, 1, 3), 101, np.uint8))
    shown = [int(frame[0, 0, 0]) for frame in movie.frames]
    assert movie.every == 16 and shown == [0, 16, 32, 48, 64, 80, 96, 101]
    assert len(taken) < 35  # most steps are not drawn at all


def test_a_gif_keeps_its_colours_and_holds_the_last_frame(tmp_path):
    movie = Film(10)
    for k in range(5):
        frame = np.full((30, 200, 3), film.PAPER, np.uint8)
        frame[10:20, 20 * k : 20 * k + 10] = film.GREEN
        movie.add(frame)
    movie.save(tmp_path / "a.gif", 10.0, "a title")
    with Image.open(tmp_path / "a.gif") as picture:
        for k in range(5):
            picture.seek(k)
            image = np.asarray(picture.convert("RGB")).astype(int)[-30:]
            assert np.abs(image - movie.frames[k]).max() < 12
            assert picture.info["duration"] == (1500 if k == 4 else 100)


@pytest.mark.slow
def test_an_mp4_can_be_played(runs, tmp_path):
    import av

    (episode,) = watch(runs["point-mass-1t"], tmp_path / "a.mp4", episodes=1, frames=500)
    with av.open(str(tmp_path / "a.mp4")) as movie:
        frames = [frame.to_ndarray(format="rgb24") for frame in movie.decode(video=0)]
        assert movie.streams.video[0].codec.name == "h264" and movie.streams.video[0].average_rate == 10
    assert len(frames) == episode.steps + 2 + 15  # the first state, every step, the end, and 1.5 seconds of it
    assert all(n % 2 == 0 for n in frames[0].shape[:2])
    last = film.side_by_side([episode.panel()], 1, (480, 400), 6)
    height, width = last.shape[:2]
    below = frames[-1][frames[-1].shape[0] - height - frames[-1].shape[0] % 2 :][:height, :width].astype(int)
    assert np.abs(below - last).mean() < 8  # compressed, and perhaps moved by a pixel


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "hardset"}, "unknown choice of tasks 'hardset'. Did you mean hardest"),
        ({"tasks": "target", "contexts": [[0, 1, 0]]}, "expected one of the two"),
        ({"contexts": [[0, 1]]}, "expected (3,), which is (gate_position, gate_width, friction)"),
        ({"contexts": [[0, 1, 9]]}, "friction = 9 lies outside [0, 4]"),
        ({"contexts": [[0, 1, float("nan")]]}, "friction = nan lies outside"),
        ({"seed": 3}, "seed 3 is not in"),
        ({"episodes": 0}, "0 episodes side by side: expected 1 to 12"),
        ({"episodes": 13}, "13 episodes side by side: expected 1 to 12"),
        ({"frames": 1}, "frames = 1: expected at least 2"),
        ({"fps": 0.0}, "fps = 0: expected more than 0"),
    ],
)
def test_mistakes_are_named(runs, tmp_path, options, message):
    with pytest.raises(ConfigError) as caught:
        watch(runs["point-mass-1t"], tmp_path / "a.gif", **options)
    assert message in str(caught.value)
    assert not (tmp_path / "a.gif").exists()


def test_runs_that_cannot_be_watched(runs, tmp_path):
    known = procurl.load_result(runs["point-mass-1t"])
    own = dataclasses.replace(known, config={**known.config, "setting": ""}).save(tmp_path / "own")
    with pytest.raises(ConfigError, match="environment of its own"):
        watch(own, tmp_path / "a.gif")
    broken = {k: np.full_like(v, np.nan) for k, v in known.params.items()}
    broken = dataclasses.replace(known, params=broken, provenance={"status": "failed"}).save(tmp_path / "nan")
    with pytest.raises(ConfigError, match="NaN or infinite"):
        watch(broken, tmp_path / "a.gif")
    (tmp_path / "unfinished" / "checkpoints").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="holds an unfinished run: `procurl resume"):
        watch(tmp_path / "unfinished", tmp_path / "a.gif")


def test_files_that_cannot_be_written(runs, tmp_path, monkeypatch):
    run = runs["point-mass-1t"]
    with pytest.raises(ConfigError, match="ends in .gif or .mp4"):
        watch(run, tmp_path / "a.avi")
    (tmp_path / "b.gif").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        watch(run, tmp_path / "b.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write to the folder"):
        watch(run, tmp_path / "file" / "a.gif", frames=2)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'procurl\[video\]', or choose a name that ends in .gif"):
        watch(run, tmp_path / "a.mp4")


def test_the_command_line(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("procurl.devices.use_cores", lambda *a, **k: None)  # JAX is already running here
    monkeypatch.chdir(tmp_path)
    assert cli.main(["watch", str(runs["bipedal"]), "--context=-1,2", "--context", "2.5,1", "--frames", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("given context, instance 0 (stump height -1.00, stump spacing 2.00): ")
    assert len(lines) == 3 and lines[2].startswith("wrote bipedal.gif (")
    assert cli.main(["watch", str(runs["bipedal"]), "--context", "2.5;1"]) == 1
    assert "--context=2.5;1: expected numbers with commas" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["watch", str(runs["bipedal"]), "--context", "-1,2"])
    assert "write --context=-2,1,0" in capsys.readouterr().err
