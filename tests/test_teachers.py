"""ProCuRL against a brute-force double loop; every teacher against the contract."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from twins import procurl_target_twin

import procurl
from procurl.check.teacher import imagined_episodes
from procurl.errors import CheckError, ConfigError
from procurl.programs import jit
from procurl.targets import Point, Uniform
from procurl.teachers.base import cumulative, draw
from procurl.teachers.procurl import ProCuRLTarget, ProCuRLUnif, distance, inner_product, learning_potential
from procurl.types import Task, TaskSpace

N_TARGETS = 30  # of all spaces here: a program is compiled for a shape


@functools.cache
def setting(name, n_pool=None):
    """Its space, with the whole pool or the first tasks of it."""
    if n_pool is None:
        return procurl.make(name)[1]
    whole = setting(name)
    return dataclasses.replace(whole, pool=tasks(np.asarray(whole.pool.context)[:n_pool]))


def tasks(context):
    """Arrays of JAX by way of NumPy, which compiles nothing."""
    numbers = np.arange(len(context), dtype=np.int32)
    return Task(*map(jnp.asarray, (np.asarray(context, np.float32), numbers, numbers)))


def small_space(n_pool=40, n_targets=N_TARGETS, seed=0, value_range=(0.0, 1.0), identical_targets=False):
    rng = np.random.default_rng(seed)
    targets = rng.uniform(0, 3, (n_targets, 2))
    if identical_targets:
        targets[:] = targets[0]
    low, high = (jnp.asarray(np.full(2, x, np.float32)) for x in (0.0, 3.0))
    return TaskSpace(
        low, high, tasks(rng.uniform(0, 3, (n_pool, 2))), tasks(targets), tasks(targets),
        names=("a", "b"), target=Point((1.0, 2.0)), value_range=value_range,
    )  # fmt: skip


class Fixed(NamedTuple):
    """A critic that knows the values by heart: pool and targets are told apart by their number."""

    pool: np.ndarray
    targets: np.ndarray

    def value(self, tasks):
        values = self.pool if tasks.seed.shape[0] == len(self.pool) else self.targets
        return jnp.asarray(values, jnp.float32)


# Compiled once for all tests: teachers and critics are arguments.
begun = jit(lambda teacher: teacher.init(jax.random.key(0)))
drawn = jit(lambda teacher, state, key: teacher.propose(state, key, 50_000).row)


@jit
def watched(teacher, critic):
    """The state after an iteration in which somebody played."""
    state = teacher.init(jax.random.key(0))
    proposed = jax.tree.map(lambda x: x[:16], teacher.space.pool)
    return teacher.observe(state, jax.random.key(3), imagined_episodes(jax.random.key(1), proposed), critic)


@jit
def chances(teacher, state):
    return jax.nn.softmax(teacher.log_weights(state) if isinstance(teacher, ProCuRLTarget) else state.log_weights)


def probabilities(teacher, state):
    return np.asarray(chances(teacher, state), np.float64)


def random_critic(space, seed=1, scale=1.0):
    rng = np.random.default_rng(seed)
    return Fixed(scale * rng.uniform(-0.2, 1.2, space.n_pool), scale * rng.uniform(-0.2, 1.2, len(space.targets.seed)))


@pytest.mark.parametrize("pairing", ["pair", "max"])
@pytest.mark.parametrize("length_scale", [1.0, 0.3])
def test_target_equals_the_double_loop(pairing, length_scale):
    space = small_space()
    critic = random_critic(space)
    teacher = ProCuRLTarget(space, beta=90.0, pairing=pairing, length_scale=length_scale)
    expected = procurl_target_twin(
        critic.pool, critic.targets, *(np.asarray(t.context, np.float64) for t in (space.pool, space.targets)),
        beta=90.0, pairing=pairing, length_scale=length_scale,
    )  # fmt: skip
    np.testing.assert_allclose(probabilities(teacher, watched(teacher, critic)), expected, rtol=2e-4, atol=1e-9)


def test_unif_equals_its_formula():
    space = small_space()
    critic = random_critic(space)
    v = np.clip(critic.pool, 0, 1)
    expected = np.exp(110 * v * (1 - v))
    teacher = ProCuRLUnif(space, beta=110.0)
    np.testing.assert_allclose(probabilities(teacher, watched(teacher, critic)), expected / expected.sum(), rtol=2e-4)


@pytest.mark.parametrize(  # no rounds: the exact table alone fills the queue; "max" has none anyway
    ("pairing", "max_rounds"), [("pair", 64), ("pair", 0), ("max", 64)]
)
def test_frequencies_are_those_of_the_double_loop(pairing, max_rounds, monkeypatch):
    monkeypatch.setattr(ProCuRLTarget, "max_rounds", max_rounds)
    space = small_space()
    critic = random_critic(space)
    teacher = ProCuRLTarget(space, beta=90.0, pairing=pairing)
    state = watched(teacher, critic)
    expected = procurl_target_twin(
        critic.pool, critic.targets, *(np.asarray(t.context, np.float64) for t in (space.pool, space.targets)),
        beta=90.0, pairing=pairing,
    )  # fmt: skip
    anew = jit(lambda teacher, state, key: teacher.propose(state, key, 50_000).row)  # rounds are not an argument
    rows = np.asarray((drawn if max_rounds else anew)(teacher, state, jax.random.key(5)))
    assert chi_square(rows, expected) > 1e-3


def chi_square(rows, expected):
    n = len(rows)
    counts = np.bincount(rows, minlength=len(expected))
    common = expected * n >= 5  # the rest is pooled into one cell, as the test requires
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum()) * n
    keep = wanted > 0
    assert observed[~keep].sum() == 0
    wanted = wanted * n / wanted.sum()  # float32 probabilities sum to 1 only nearly
    return stats.chisquare(observed[keep], wanted[keep]).pvalue


def test_thinning_is_exact_when_most_pairs_are_refused():
    """Potentials of the targets far apart: few acceptances, several rounds, and then the table."""
    space, n = small_space(), 20_000
    critic = Fixed(np.linspace(0.3, 0.7, 40), np.where(np.arange(N_TARGETS) == 0, 0.5, 0.01))
    for beta, rounds in ((40.0, None), (600.0, 2)):
        teacher = ProCuRLTarget(space, beta=beta)
        state = watched(teacher, critic)
        if rounds is not None:
            object.__setattr__(teacher, "max_rounds", rounds)
        filled, rows = jax.jit(lambda s, k, t=teacher: filled_and_drawn(t, s, k, n))(state, jax.random.key(0))
        assert (int(filled) < n) == (rounds is not None), "the second case must need the table"
        assert chi_square(np.asarray(rows), probabilities(teacher, state)) > 1e-3


def filled_and_drawn(teacher, state, key, n):
    """How many of the n rows that are proposed come from thinning, and the rows."""
    with pytest.MonkeyPatch.context() as patch:
        seen, thin = [], ProCuRLTarget._thin
        patch.setattr(ProCuRLTarget, "_thin", lambda *args: seen.append(thin(*args)) or seen[-1])
        rows = teacher.propose(state, key, n).row
    return seen[0][1], rows


class TestRelativeTemperature:
    """Without beta, the exponent of the best task or pair of the moment is b."""

    @pytest.mark.parametrize("pairing", ["pair", "max"])
    def test_target_is_that_of_the_beta_which_makes_it_so(self, pairing):
        space = small_space()
        critic = random_critic(space)
        z_pool, z_targets = (v * (1 - v) for v in (np.clip(x, 0, 1) for x in critic))
        contexts = [np.asarray(t.context, np.float64) for t in (space.pool, space.targets)]
        distances = np.linalg.norm(contexts[0][:, None] - contexts[1][None], axis=-1)
        best = (z_pool[:, None] * z_targets * np.exp(-distances)).max()
        expected = procurl_target_twin(*critic, *contexts, beta=7.0 / best, pairing=pairing, length_scale=1.0)
        teacher = ProCuRLTarget(space, b=7.0, pairing=pairing)
        state = watched(teacher, critic)
        np.testing.assert_allclose(probabilities(teacher, state), expected, rtol=1e-3, atol=1e-9)
        rows = np.asarray(drawn(teacher, state, jax.random.key(5)))
        assert chi_square(rows, expected) > 1e-3

    def test_unif_is_that_of_the_beta_which_makes_it_so(self):
        space = small_space()
        critic = random_critic(space)
        z = np.clip(critic.pool, 0, 1) * (1 - np.clip(critic.pool, 0, 1))
        a, b = ProCuRLUnif(space, b=7.0), ProCuRLUnif(space, beta=float(7.0 / z.max()))
        np.testing.assert_allclose(
            probabilities(a, watched(a, critic)), probabilities(b, watched(b, critic)), rtol=1e-4
        )

    def test_it_is_the_default_where_no_beta_is_given_and_no_preset_applies(self):
        assert ProCuRLTarget(small_space()).beta is None and ProCuRLUnif(small_space()).b == 5.0
        assert procurl.make_teacher("procurl-unif", small_space()).beta is None
        assert procurl.make_teacher("procurl-unif", setting("point-mass-2g")).beta == 130.0
        assert procurl.make_teacher("procurl-unif", setting("point-mass-2g"), beta=None).beta is None

    @pytest.mark.parametrize("make", [ProCuRLTarget, ProCuRLUnif])
    def test_with_nothing_to_learn_it_is_uniform(self, make):
        teacher = make(small_space())
        for value in (0.0, 1.0, np.nan):
            state = watched(teacher, Fixed(np.full(40, value), np.full(N_TARGETS, value)))
            np.testing.assert_allclose(probabilities(teacher, state), 1 / 40, rtol=1e-5)


class TestInvariances:
    """The list of the specification, section 4.4."""

    def test_permuting_the_pool_permutes_the_probabilities(self):
        space = small_space()
        critic = random_critic(space)
        order = np.random.default_rng(0).permutation(space.n_pool)
        shuffled = dataclasses.replace(space, pool=tasks(np.asarray(space.pool.context)[order]))
        for pairing in ("pair", "max"):
            p, q = (
                probabilities(t := ProCuRLTarget(s, beta=90.0, pairing=pairing), watched(t, c))
                for s, c in ((space, critic), (shuffled, Fixed(critic.pool[order], critic.targets)))
            )
            np.testing.assert_allclose(p[order], q, rtol=1e-4)

    def test_pairings_agree_for_identical_targets(self):
        space = small_space(identical_targets=True)
        critic = Fixed(random_critic(space).pool, np.full(N_TARGETS, 0.4))
        p, q = (
            probabilities(t := ProCuRLTarget(space, beta=90.0, pairing=pairing), watched(t, critic))
            for pairing in ("pair", "max")
        )
        np.testing.assert_allclose(p, q, rtol=1e-4)

    @pytest.mark.parametrize("make", [ProCuRLTarget, ProCuRLUnif])
    def test_beta_zero_is_uniform(self, make):
        space = small_space()
        teacher = make(space, beta=0.0)
        p = probabilities(teacher, watched(teacher, random_critic(space)))
        np.testing.assert_allclose(p, 1 / space.n_pool, rtol=1e-5)

    @pytest.mark.parametrize("make", [ProCuRLTarget, ProCuRLUnif])
    def test_the_units_of_return_do_not_matter(self, make):
        """As on the Bipedal Walker, whose returns from -150 to 350 are scaled to [0, 1]."""
        space, scaled = small_space(), small_space(value_range=(-150.0, 350.0))
        critic = random_critic(space)
        a, b = make(space, beta=90.0), make(scaled, beta=90.0)
        p = probabilities(a, watched(a, critic))
        q = probabilities(b, watched(b, Fixed(500 * critic.pool - 150, 500 * critic.targets - 150)))
        np.testing.assert_allclose(p, q, rtol=1e-4)

    def test_values_are_measured_from_v_min(self):
        space = small_space(value_range=(-1.0, 1.0))
        z = jax.jit(lambda v: learning_potential(v, space))(np.array([-1.0, 0.0, 1.0], np.float32))
        assert np.allclose(z, [0.0, 0.25, 0.0])

    def test_potential_is_symmetric_about_the_middle(self):
        space = small_space()
        z = np.asarray(jax.jit(lambda v: learning_potential(v, space))(np.linspace(0, 1, 11, dtype=np.float32)))
        np.testing.assert_allclose(z, z[::-1], atol=1e-7)
        assert float(z.max()) == pytest.approx(0.25)

    def test_constant_similarity_and_targets_reduce_to_unif(self):
        space = small_space()
        critic = Fixed(random_critic(space).pool, np.full(N_TARGETS, 0.5))
        a = ProCuRLTarget(space, beta=90.0, similarity=lambda c, t: jnp.ones((c.shape[0], t.shape[0])))
        b = ProCuRLUnif(space, beta=90.0 * 0.25)
        np.testing.assert_allclose(
            probabilities(a, watched(a, critic)), probabilities(b, watched(b, critic)), rtol=1e-4
        )


def test_absurd_values_are_handled():
    space = small_space()
    uniform = np.full(space.n_pool, 1 / space.n_pool)
    for make in (ProCuRLTarget, ProCuRLUnif):
        for value in (0.0, 1.0, np.nan, -7.0, 1e30, np.inf):
            teacher = make(space, beta=130.0)
            state = watched(teacher, Fixed(np.full(40, value), np.full(N_TARGETS, value)))
            np.testing.assert_allclose(probabilities(teacher, state), uniform, rtol=1e-5, err_msg=f"{make} {value}")
    some = np.where(np.arange(40) < 20, np.nan, 0.5)
    teacher = ProCuRLUnif(space, beta=130.0)
    p = probabilities(teacher, watched(teacher, Fixed(some, np.full(N_TARGETS, 0.5))))
    assert p[:20].sum() < 1e-9 and p[20:].sum() == pytest.approx(1.0), "NaN counts as hopeless, not as anything else"


def test_enormous_exponents_do_not_overflow():
    space = small_space()
    critic = Fixed(np.linspace(0, 1, 40), np.linspace(0, 1, N_TARGETS))
    for pairing in ("pair", "max"):
        teacher = ProCuRLTarget(space, beta=1e6, pairing=pairing)
        state = watched(teacher, critic)
        p = probabilities(teacher, state)
        assert np.isfinite(p).all() and p.sum() == pytest.approx(1.0, rel=1e-4)
        rows = np.asarray(jit(lambda t, s, k: t.propose(s, k, 200).row)(teacher, state, jax.random.key(0)))
        assert p[rows].min() > 0.0


def test_inner_product_of_a_representation():
    space = small_space()
    matrix = np.array([[1, -1], [0, 1]], np.float32)
    psi = lambda c: c @ matrix  # noqa: E731  # (x, y - x), which may be negative
    teacher = ProCuRLTarget(space, beta=20.0, similarity=inner_product(psi))
    critic = random_critic(space)
    state = watched(teacher, critic)
    c, t = (psi(np.asarray(x.context, np.float64)) for x in (space.pool, space.targets))
    z = lambda v: np.clip(v, 0, 1) * (1 - np.clip(v, 0, 1))  # noqa: E731
    weights = np.exp(20.0 * np.outer(z(critic.pool), z(critic.targets)) * (c @ t.T)).sum(axis=1)
    np.testing.assert_allclose(probabilities(teacher, state), weights / weights.sum(), rtol=2e-4)
    rows = np.asarray(drawn(teacher, state, jax.random.key(5)))
    assert chi_square(rows, weights / weights.sum()) > 1e-3


def test_resampled_targets_change_and_fixed_ones_do_not():
    space = dataclasses.replace(small_space(), target=Uniform((0.0, 0.0), (3.0, 3.0)))
    critic = Fixed(np.full(40, 0.5), np.full(20, 0.5))
    for resample in (False, True):
        teacher = ProCuRLTarget(space, n_targets=20, resample_targets=resample)
        state, after = begun(teacher), watched(teacher, critic)
        assert state.targets.context.shape == (20, 2)
        assert np.array_equal(state.targets.context, after.targets.context) != resample


def test_distance_is_exact_for_close_contexts():
    a = np.array([[3.9, 0.5, 2.0]], np.float32)
    b = a + np.array([[1e-4, 0.0, 0.0]], np.float32)
    assert float(jax.jit(distance)(a, b)[0, 0]) == pytest.approx(1e-4, rel=5e-3)


by_weight = jax.jit(lambda key, log_weights, n: draw(key, cumulative(log_weights), n), static_argnums=2)


def test_draw_never_picks_a_row_of_weight_zero():
    log_weights = np.where(np.arange(1000) % 3 == 1, 0.0, -np.inf).astype(np.float32)
    rows = np.asarray(by_weight(jax.random.key(0), log_weights, 100_000))
    assert (rows % 3 == 1).all()
    assert len(np.unique(rows)) == 333
    edges = by_weight(jax.random.key(1), np.array([-np.inf, 0.0, -np.inf], np.float32), 1000)
    assert (np.asarray(edges) == 1).all()


# The same in less time.
SMALLER = {
    "sfl": {"every": 2, "n_tried": 4, "n_episodes": 2, "n_kept": 2},
    "currot": {"n_particles": 60, "n_candidates": 20, "update_after": 5},
    "gradient": {"n_particles": 60},
    "alp-gmm": {"fit_every": 8, "history": 20, "max_gaussians": 3, "em_rounds": 3},
    "vds": {"updates": 2, "memory": 50, "hidden": (16,)},
}


def pairs():
    """Every pair compiles anew, CURROT's for half a minute, and the longer the larger the pool.

    So the fast tests have few tasks in one setting, but for a cheap strategy also the whole pool and another setting.
    """
    fast = [(name, "point-mass-2g", 40) for name in sorted(procurl.TEACHERS) if name not in ("currot", "plr")]
    fast += [("plr", "point-mass-2g", None), ("plr", "minigrid", None)]
    whole = [(name, where, None) for name in sorted(procurl.TEACHERS) for where in sorted(procurl.SETTINGS)]
    return fast + [pytest.param(*pair, marks=pytest.mark.slow) for pair in whole if pair not in fast]


@pytest.mark.parametrize(("name", "where", "n_pool"), pairs())
def test_every_teacher_keeps_the_contract(name, where, n_pool):
    procurl.check_teacher(procurl.make_teacher(name, setting(where, n_pool), **SMALLER.get(name, {})))


# The others, too, draw from such pools in test_extremes.py.
@pytest.mark.parametrize(
    "name", [n if n == "plr" else pytest.param(n, marks=pytest.mark.slow) for n in sorted(procurl.TEACHERS)]
)
def test_contract_holds_for_degenerate_pools(name):
    for n_pool, identical in ((1, True), (3, True), (3, False)):  # equal shapes share what is compiled
        space = small_space(n_pool=n_pool, n_targets=2, identical_targets=identical)
        if identical:
            space = dataclasses.replace(space, pool=tasks(np.ones((n_pool, 2))))
        procurl.check_teacher(procurl.make_teacher(name, space, **SMALLER.get(name, {})))


class Biased(procurl.IID):
    """A teacher that cheats, to see that the contract test bites."""

    def propose(self, state, key, n):
        good = super().propose(state, key, n)
        return good._replace(context=good.context + 100.0)


def test_the_contract_test_bites():
    jax.tree_util.register_dataclass(Biased, ["space"], [])
    with pytest.raises(CheckError, match=r"lies outside \[0, 3\]"):
        procurl.check_teacher(Biased(small_space()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beta": -1.0}, "beta = -1.0: expected at least 0"),
        ({"pairing": "mean"}, "expected 'pair' or 'max'"),
        ({"n_targets": N_TARGETS + 1}, f"the space holds {N_TARGETS} targets"),
        ({"n_targets": 0}, "n_targets = 0: expected at least 1"),
        ({"length_scale": 0.0}, "expected a positive number"),
    ],
)
def test_bad_hyper_parameters_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        ProCuRLTarget(small_space(), **fields)


def test_make_teacher_knows_the_presets_and_misspellings():
    space = setting("point-mass-2g")
    assert procurl.make_teacher("procurl-target", space).beta == 130.0
    release = procurl.make_teacher("procurl-target", space, variant="release")
    assert release.pairing == "max" and release.resample_targets
    assert procurl.make_teacher("procurl-target", space, beta=7.0).beta == 7.0
    with pytest.raises(ConfigError, match="Did you mean procurl-target"):
        procurl.make_teacher("procurl-traget", space)
    with pytest.raises(ConfigError, match="Did you mean beta"):
        procurl.make_teacher("procurl-target", space, betta=1.0)
    with pytest.raises(ConfigError, match="Did you mean point-mass-1t"):
        procurl.make("point-mass-t1")
    with pytest.raises(ConfigError, match="Did you mean release"):
        procurl.make_teacher("iid", space, variant="relase")


def test_draws_from_a_million_rows_have_the_right_frequencies():
    """In one cumulative sum of float32, a row of probability 1e-6 would be off by tens of percents."""
    n = 1_000_003
    log_weights = np.zeros(n, np.float32)
    log_weights[:4] = log_weights[-2:] = 9.0
    log_weights[500_000:600_000] = -np.inf
    rows = np.asarray(by_weight(jax.random.key(0), log_weights, 300_000))
    probabilities = special.softmax(log_weights.astype(np.float64))
    assert rows.min() >= 0 and rows.max() < n
    assert not ((rows >= 500_000) & (rows < 600_000)).any()
    parts = [slice(i, i + 1) for i in (0, 1, 2, 3, n - 2, n - 1)]
    parts += [slice(4 + 50_000 * k, 4 + 50_000 * (k + 1)) for k in range(9)] + [slice(600_000, n - 2)]
    seen = np.array([((rows >= p.start) & (rows < p.stop)).sum() for p in parts])
    expected = np.array([probabilities[p].sum() for p in parts]) * len(rows)
    chi_square = np.sum((seen - expected) ** 2 / expected)
    assert chi_square < stats.chi2.ppf(0.999, len(parts))
    even = (rows[(rows >= 4) & (rows < 500_000)] % 2 == 0).mean()  # neighbours, which are hardest to tell apart
    assert abs(even - 0.5) < 0.005


def test_a_million_rows_of_no_distribution_give_none():
    log_weights = np.zeros(1_000_003, np.float32)  # as above: the same program
    log_weights[7] = np.nan
    assert (np.asarray(by_weight(jax.random.key(0), log_weights, 300_000)) == -1).all()
