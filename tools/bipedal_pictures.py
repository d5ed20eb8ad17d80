"""Make the picture of docs/settings/bipedal.md: an easy and a hard track as the walker meets them.

python tools/bipedal_pictures.py docs/settings/images/bipedal.png
"""

from __future__ import annotations

import sys

import matplotlib.image
import numpy as np

from procurl.envs.bipedal.stump_tracks import StumpTracks

EASY, HARD = (0.4, 4.0), (2.5, 1.0)  # (mean height, spacing)


def main() -> None:
    env, frames = StumpTracks(render_mode="rgb_array"), []
    for context in (EASY, HARD):
        env.reset(options={"context": context, "task_seed": 0})
        frames.append(env.render()[120:370])  # less sky, less earth
    gap = np.full((len(frames[0]), 12, 3), 255, np.uint8)
    matplotlib.image.imsave(sys.argv[1], np.concatenate([frames[0], gap, frames[1]], axis=1))


if __name__ == "__main__":
    main()
