"""Animations as files: panels side by side with captions, few enough frames, written as GIF (Pillow) or MP4 (PyAV).

Nothing here knows of tasks or students; `bench/watch/__init__.py` says what is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from procurl.check.numbers import whole
from procurl.errors import ConfigError, needs_extra
from procurl.runs.store import disk

with needs_extra("watch", "animations need Pillow"):
    from PIL import Image, ImageDraw, ImageFont

Frame = NDArray[np.uint8]  # [height, width, 3]
Colour = tuple[int, int, int]

SUFFIXES = (".gif", ".mp4")
SHADES = 128  # colours of a GIF; fewer make smaller files, and paths that fade look banded
HOLD = 1.5  # seconds that the last frame stays
MARGIN, TEXT = 12, 13  # pixels: between panels, and of a line's letters
LINE = TEXT + 5
PAPER, INK, FAINT = (255, 255, 255), (34, 34, 34), (110, 110, 110)
GREEN, RED = (0, 120, 88), (178, 60, 0)  # safe for colour-blind people, and the words say it too


class Line(NamedTuple):
    """One line of a caption."""

    text: str
    colour: Colour = INK


class Panel(NamedTuple):
    """One picture and what stands below it."""

    picture: Frame
    caption: Sequence[Line]


class Film:
    """Frames at even distances in time, `most` at most.

    How long an episode lasts is not known before it ends. So every step is taken at first, and whenever there are too
    many frames, every second one goes and steps are taken half as often from then on: memory and file stay small.
    """

    def __init__(self, most: int) -> None:
        self.most, self.every = whole("frames", most, 2), 1
        self.frames: list[Frame] = []

    def wants(self, step: int) -> bool:
        return step % self.every == 0

    def add(self, frame: Frame) -> None:
        self.frames.append(frame)
        if len(self.frames) > self.most:
            self.frames = self.frames[::2]
            self.every *= 2

    def end(self, frame: Frame) -> None:
        """The last moment is always shown, whatever step it is."""
        self.frames = [*self.frames[: self.most - 1], frame]

    def save(self, path: Path, fps: float, title: str) -> None:
        """Write all frames below a line of text; the file appears complete or not at all."""
        width = self.frames[0].shape[1]
        head = heading(title, width)
        frames = [np.concatenate([head, frame]) for frame in self.frames]
        write = {".gif": save_gif, ".mp4": save_mp4}[checked_suffix(path)]
        disk.made_folder(path.parent)
        with disk.replacing(path) as partial:
            write(frames, partial, fps)


def checked_suffix(path: Path) -> str:
    """The kind of file that a name asks for; asked before any work is done."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: expected the name of a file")
    if suffix == ".mp4":
        _av()
    return suffix


def save_gif(frames: list[Frame], path: Path, fps: float) -> None:
    """One palette for all frames: colours do not flicker, and what stands still costs nothing."""
    sample = np.concatenate(frames[:: max(1, len(frames) // 12)] + frames[-1:])
    palette = Image.fromarray(sample).quantize(SHADES, method=Image.Quantize.FASTOCTREE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    duration = max(20, round(1000 / fps))  # viewers play anything shorter slowly
    durations = [duration] * (len(images) - 1) + [round(1000 * HOLD)]
    # optimize: what did not change becomes transparent, which makes files five times smaller
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)


def save_mp4(frames: list[Frame], path: Path, fps: float) -> None:
    """H.264 with colours at half resolution, which every browser and slide program plays; it wants even sizes."""
    av = _av()
    height, width = (-(-n // 2) * 2 for n in frames[0].shape[:2])
    rate = Fraction(fps).limit_denominator(1000)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "20"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames + frames[-1:] * round(HOLD * fps):
            even = np.full((height, width, 3), PAPER, np.uint8)
            even[: frame.shape[0], : frame.shape[1]] = frame
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode(None))


def _av() -> Any:
    with needs_extra("video", "MP4 needs PyAV", otherwise=", or choose a name that ends in .gif"):
        import av
    return av


def side_by_side(panels: Sequence[Panel], columns: int, size: tuple[int, int], lines: int) -> Frame:
    """One frame: panels in rows, each picture shrunk into `size` (width, height), with room for `lines` of caption."""
    width, height = size
    cell = width + MARGIN, height + lines * LINE + MARGIN + 6
    rows = -(-len(panels) // columns)
    sheet = Image.new("RGB", (columns * cell[0] + MARGIN, rows * cell[1]), PAPER)
    draw = ImageDraw.Draw(sheet)
    for k, panel in enumerate(panels):
        left, top = MARGIN + k % columns * cell[0], k // columns * cell[1]
        picture = shrunk(Image.fromarray(panel.picture), size)
        sheet.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
        for i, line in enumerate(panel.caption):
            draw.text((left, top + height + 6 + i * LINE), line.text, line.colour, font())
    return np.asarray(sheet)


def heading(title: str, width: int) -> Frame:
    """Lines of text over the whole width."""
    lines = wrapped(title, width - 2 * MARGIN)
    sheet = Image.new("RGB", (width, len(lines) * LINE + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    for i, text in enumerate(lines):
        draw.text((MARGIN, 6 + i * LINE), text, INK, font())
    return np.asarray(sheet)


def wrapped(text: str, width: int) -> list[str]:
    """Lines no wider than so many pixels, broken between words."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font().getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def shrunk(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """To fit into (width, height) with the same proportions; never larger than it was."""
    scale = min(size[0] / picture.width, size[1] / picture.height)
    if scale >= 1:
        return picture
    return picture.resize((round(scale * picture.width), round(scale * picture.height)), Image.Resampling.LANCZOS)


@cache
def font() -> Any:
    return ImageFont.load_default(TEXT)  # comes with Pillow: the same letters everywhere
