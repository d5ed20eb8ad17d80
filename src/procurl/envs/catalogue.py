"""The environments of procurl as data: their settings, the presets there, and their Gymnasium ids.

`paper` is what the paper defines; `release` is how the released code behaves where the two differ. A strategy that a
setting does not name runs with its class's own defaults. This module does not import JAX: classes and functions that
need it are named as "module:name", and loaded on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from procurl.config import PPO, SAC, Config


@dataclass(frozen=True)
class Setting:
    """One benchmark setting: how the student learns there, and what each strategy is told."""

    summary: str
    steps: int  # the paper's training length
    seeds: int  # the paper's number of runs
    config: Config
    teachers: dict[str, dict[str, Any]] = field(default_factory=dict)  # strategy -> hyper-parameters
    release: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the released code changes
    release_config: Config | None = None  # the student of the released code, where it differs
    space_args: tuple[Any, ...] = ()  # what the environment's `space` is called with

    def towards(self, target: str, detail: str, **config: Any) -> Setting:
        """The same with one of the environment's target distributions."""
        summary, config_ = f"{self.summary}, {detail}", replace(self.config, **config)
        return replace(self, summary=summary, config=config_, space_args=(target,))


@dataclass(frozen=True)
class Entry:
    """One environment and its settings."""

    name: str  # the names of its settings begin with it
    environment: str  # the class
    space: str  # the function that builds a setting's task space
    settings: dict[str, Setting]  # the first is Gymnasium's default
    gymnasium_id: str | None  # None: Gymnasium has another environment for it
    gymnasium_class: str | None = None  # plays in another package; None: `SettingEnv`, around the JAX environment
    scene: str | None = None  # an `envs.pictures.Scene`, if Gymnasium's environment has pictures


RELEASE: dict[str, dict[str, Any]] = {  # what the released code changes wherever the student is PPO
    "procurl-target": {"pairing": "max", "resample_targets": True},
    "spdl": {"target": "uniform"},
    "plr": {"score": "signed_gae"},
}

POINT_MASS = Setting(
    "Point Mass Sparse",
    steps=2_000_000,
    seeds=25,
    config=Config(ppo=PPO(), evaluation_episodes=10),
    teachers={
        "procurl-unif": {"beta": 130.0},
        "procurl-target": {"beta": 130.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.5},
        "currot": {"v_lb": 0.6, "epsilon": 0.05},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 10, "max_steps_per_stage": 100_000, "threshold": 0.8},
        "adr": {"start": (0.0, 8.0, 0.0)},  # the widest gate, in the middle, without friction
    },
    release={**RELEASE, "currot": {"epsilon": 0.5}},
)

MAZE = Setting(
    "Sparse Goal Reaching",
    steps=1_000_000,
    seeds=10,
    config=Config(ppo=PPO(batch_size=256, entropy=0.0, shared=(64,), separate=(32,)), evaluation_episodes=10),
    teachers={
        "procurl-unif": {"beta": 90.0},
        "procurl-target": {"beta": 90.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.2},
        "currot": {"v_lb": 0.4, "epsilon": 1.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 5, "max_steps_per_stage": 100_000, "threshold": 0.8},
        "adr": {"start": (0.0, 0.0, 18.0)},  # the middle, and everything is near enough to it
    },
    release={
        **RELEASE,
        "procurl-target": {**RELEASE["procurl-target"], "n_targets": 400},
        "currot": {"epsilon": 0.2},
    },
)

# 25,600 steps an update; evaluated every 4 updates on 100 layouts that nobody trains on
MINIGRID_PPO = PPO(n_steps=25_600, batch_size=64, shared=(256, 128, 64, 32), separate=())
MINIGRID = Setting(
    "MiniG, six MiniGrid missions; the target is to fetch the box behind a blocked door",
    steps=4_000_000,
    seeds=20,
    config=Config(ppo=MINIGRID_PPO, evaluate_every=4, evaluation_episodes=1),
    teachers={
        "procurl-unif": {"beta": 110.0},
        "procurl-target": {"beta": 110.0},
        "spdl": {"v_lb": 0.5, "epsilon": 0.2},
        "currot": {"v_lb": 0.4, "epsilon": 1.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 7, "max_steps_per_stage": 450_000, "threshold": 0.4},
    },
    release={**RELEASE, "currot": {"epsilon": 0.2}},
    release_config=Config(  # two networks where the paper has one
        ppo=replace(MINIGRID_PPO, shared=(), separate=(256, 128, 64, 32)), evaluate_every=4, evaluation_episodes=1
    ),
)

# Returns lie between -150 and 350; 180 and 250 are 0.66 and 0.8 of the way up. Evaluated every 500,000 steps.
BIPEDAL = Setting(
    "BW, the Bipedal Walker on Stump Tracks; the target is every height and spacing of stumps",
    steps=20_000_000,
    seeds=10,
    config=Config(sac=SAC(), evaluate_every=250, evaluation_episodes=1),
    teachers={
        "iid": {"redraw_every": 1},
        "procurl-unif": {"beta": 90.0, "redraw_every": 2_000_000},
        "procurl-target": {"beta": 90.0, "redraw_every": 2_000_000},
        "spdl": {"v_lb": 180.0, "epsilon": 0.5},
        "currot": {"v_lb": 180.0, "epsilon": 0.5},
        "plr": {"rho": 0.5, "beta": 0.1},
        "gradient": {"n_stages": 10, "max_steps_per_stage": 1_000_000, "threshold": 250.0},
    },
    release={"procurl-target": {**RELEASE["procurl-target"], "n_targets": 250}},
)

# 2560 steps an iteration over 128 walkers, still an update for every ten steps; evaluated every 499,200 steps.
BIPEDAL_JAX = replace(
    BIPEDAL,
    summary="BW with the walker in JAX: the same tasks and physics without Box2D, on a GPU or CPU",
    config=Config(sac=SAC(n_envs=128, n_steps=2560), evaluate_every=195, evaluation_episodes=1),
)

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        name="point-mass",
        environment="procurl.envs.point_mass:PointMass",
        space="procurl.envs.point_mass:space",
        scene="procurl.envs.point_mass:SCENE",
        gymnasium_id="procurl/PointMass-v0",
        settings={
            # a point needs no repeats: its 100 held-out tasks are 100 episodes of the same task
            "point-mass-1t": POINT_MASS.towards(
                "1t", "one target: a narrow gate off the straight line", evaluation_episodes=1
            ),
            "point-mass-2g": POINT_MASS.towards("2g", "two targets: narrow gates at either border, any friction"),
            "point-mass-1g": POINT_MASS.towards("1g", "one border gate, any friction (extra)"),
        },
    ),
    Entry(
        name="maze",
        environment="procurl.envs.maze:Maze",
        space="procurl.envs.maze:space",
        scene="procurl.envs.maze:SCENE",
        gymnasium_id="procurl/Maze-v0",
        settings={
            "maze-plane": MAZE.towards("plane", "goals anywhere with the smallest tolerance"),
            "maze-1t": MAZE.towards("1t", "one target: the far corner with the smallest tolerance (extra)"),
            "maze-1g": MAZE.towards("1g", "goals anywhere with tolerances near 0.06 (extra)"),
            "maze-2g": MAZE.towards("2g", "goals anywhere with tolerances near 0.06 or 0.12 (extra)"),
        },
    ),
    Entry(
        name="minigrid",
        environment="procurl.envs.minigrid:MiniGrid",
        space="procurl.envs.minigrid:space",
        gymnasium_id="procurl/MiniG-v0",
        gymnasium_class="procurl.integrations.minigrid:MiniG",  # extra [minigrid]
        settings={"minigrid": MINIGRID},
    ),
    Entry(
        name="bipedal",
        environment="procurl.envs.bipedal.space:BoxWalker",
        space="procurl.envs.bipedal.space:bipedal_space",
        gymnasium_id="procurl/StumpTracks-v0",
        gymnasium_class="procurl.envs.bipedal.stump_tracks:StumpTracks",  # extra [box2d]
        settings={"bipedal": BIPEDAL},
    ),
    Entry(
        name="bipedal-jax",
        environment="procurl.envs.bipedal.jax_walker.env:JaxWalker",
        space="procurl.envs.bipedal.space:bipedal_space",
        gymnasium_id=None,  # procurl/StumpTracks-v0
        settings={"bipedal-jax": BIPEDAL_JAX},
    ),
)
