"""Pictures of curricula, and comparisons that were run in parts."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from procurl.bench import figures
from procurl.envs.minigrid.families import BITS, BLOCKED, CROSSING, FAMILIES
from procurl.result import Result

ROOT = Path(__file__).parent.parent


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(family):
    """Two seeds, three iterations of four episodes; `family` i[2, 3, 4], -1 where no episode began."""
    family = np.asarray(family)
    context = np.where(family[..., None] < 0, np.nan, BITS[family])
    config = {"setting": "minigrid", "teacher": {"class": "IID"}, "config": {"ppo": {"n_steps": 100}}}
    return Result(
        config=config, provenance={}, timing={}, seeds=np.arange(2), steps=np.array([0, 300]),
        task_ret=np.zeros((2, 2, 1)), task_success=np.zeros((2, 2, 1)), held_out={"context": BITS[[BLOCKED]]},
        trace={"task_context": context.astype(np.float32), "started": np.full((2, 3), 4)}, params={},
    )  # fmt: skip


def test_shares_of_minigrid_s_families(monkeypatch):
    monkeypatch.setattr(figures, "_smooth", lambda x: x)
    family = np.full((2, 3, 4), CROSSING)
    family[:, 1, :2], family[0, 2], family[1, 2, 1:] = BLOCKED, BLOCKED, -1  # half, then four of five
    picture = figures.curriculum("minigrid", [run_of(family)])["curriculum"]
    areas = {area.get_label(): area for area in picture.axes[0].collections}
    assert set(areas) == {f.name for f in FAMILIES} == set(figures.FAMILY_COLOURS)
    outline = areas["blocked-unlock-pickup"].get_paths()[0].vertices  # the lowest area: its top is the share
    tops = [outline[np.isclose(outline[:, 0], x), 1].max() for x in (0.0, 1e-4, 2e-4)]
    np.testing.assert_allclose(tops, [0.0, 0.5, 0.8])
    figures.plt.close(picture)


def test_comparisons_that_ran_side_by_side_are_joined_without_their_speeds(tmp_path, capsys):
    compare = script(ROOT / "benchmarks/compare.py")
    for k, name in enumerate(("procurl-target:release", "iid")):
        row = {"mean": [0.0, 1.0 - k], "standard_error": [0, 0], "final_per_seed": [1.0 - k] * 3, "area": [0.5, 0.1]}
        summary = {
            "setting": "minigrid", "student": "release", "seeds": 3, "date": "", "steps": [0, 9], "space": {},
            "provenance": {"devices": ["cpu"]}, "n_steps": 9, "teachers": {name: {**row, "wall_seconds": 5}},
        }  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "a-minigrid.json").write_text(json.dumps(summary))
        np.savez(tmp_path / name / "a-minigrid.npz", **{f"{name}/context": np.zeros(k + 1), "held_out": np.zeros(1)})
    parts = sorted(tmp_path.iterdir())
    compare.merge("a-minigrid", parts, tmp_path)
    merged = json.loads((tmp_path / "a-minigrid.json").read_text())
    assert set(merged["teachers"]) == {"procurl-target:release", "iid"} and merged["student"] == "release"
    assert all("wall_seconds" not in row for row in merged["teachers"].values())
    assert "[+1.000, +1.000]" in capsys.readouterr().out  # the lead over IID
    with np.load(tmp_path / "a-minigrid.npz") as arrays:
        assert set(arrays) == {"procurl-target:release/context", "iid/context", "held_out"}
    part = parts[0] / "a-minigrid.json"
    part.write_text(part.read_text().replace('"release"', '"paper"'))
    with pytest.raises(SystemExit, match="student"):
        compare.merge("a-minigrid", parts, tmp_path)
