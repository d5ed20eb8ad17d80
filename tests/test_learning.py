"""Learning runs of minutes: `make test-slow`. The bands are wide: a run finds the gate or does not."""

import pytest

import procurl

pytestmark = pytest.mark.slow


def final_return(teacher, seeds=8, steps=1_000_000):
    env, space = procurl.make("point-mass-1t")
    result = procurl.train(
        env, procurl.make_teacher(teacher, space), procurl.preset("point-mass-1t"), seeds=seeds, steps=steps
    )
    return result.ret[:, -1]


def test_students_learn_from_uniform_tasks():
    """256 seeds gave 0.51 with a spread of 0.38 per seed; four standard errors of eight seeds around it."""
    final = final_return("iid")
    assert abs(final.mean() - 0.51) < 4 * 0.38 / 8**0.5 and final.max() > 0.5


def test_the_target_alone_teaches_little_and_the_curriculum_more():
    assert final_return("procurl-target").mean() > final_return("target").mean() + 0.1
