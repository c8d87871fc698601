"""Real inputs of each kind: photographs, faces, lines of text, files; the same in every run.

Photographs and faces are those that scikit-image ships, people those of `people.py`; the text is
rendered with the fonts of matplotlib; files are those of this Python.
"""

# Images and fonts are in the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.ptq_zoo import people
from benchmarks.ptq_zoo.networks import Network

COUNT = 64
_PHOTOS = ("astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "clock", "brick", "grass")
# Rows and columns of the astronaut's face with some space around, and the centres of her eyes.
_FACE, _FACE_SIZE, _EYES, _EYE_SIZE = (118, 222), 190, ((108, 204), (107, 243)), 48
_WORDS = [
    *("invoice", "total", "amount", "street", "number", "station", "hospital", "library", "water"),
    *("machine", "learning", "quantize", "integer", "scale", "Monday", "Friday", "January", "2024"),
    *("1999", "42", "3.14", "$12.50", "OPEN", "CLOSED", "EXIT", "Push", "Pull", "Thank", "you"),
]
_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral", "cmr10")
_IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)
# Magika reads this many bytes at each end, after stripping a block of each, and pads with 256.
_END, _BLOCK, _PADDING = 1024, 4096, 256


def make(network: Network, cache: Path, count: int = COUNT) -> np.ndarray:
    """Inputs of a network, (count, *shape without its batch), in the layout of its file.

    Args:
      network: the network.
      cache: the folder whose wheels hold photographs of people.
      count: how many.
    """
    rng, shape = np.random.default_rng(0), network.shape[1:]
    if network.inputs in _PEOPLE:
        return _PEOPLE[network.inputs](rng, shape, count, cache)
    return _KINDS[network.inputs](rng, shape, count)


def _photos(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Crops of photographs in [0, 1], half of them of an astronaut."""
    return np.stack([_crop(rng, shape[0], shape[1]) for _ in range(count)]).astype(np.float32)


def _faces(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Faces in [0, 1]: half of them an astronaut's, shifted and scaled; the others small in LFW."""
    from skimage import data

    people = rng.permutation(data.lfw_subset()[:100])  # the others are no faces

    def face(n: int) -> np.ndarray:
        if n % 2:
            gray = _resized(people[n], shape[0], shape[1])
            return _lit(rng, np.repeat(gray[..., None], 3, -1))
        return _around(rng, _FACE, _FACE_SIZE, shape)

    return np.stack([face(n) for n in range(count)]).astype(np.float32)


def _eyes(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """An astronaut's eyes in [0, 1], shifted and scaled; the right one mirrored into a left one."""
    images = [_around(rng, _EYES[n % 2], _EYE_SIZE, shape) for n in range(count)]
    return np.stack([x[:, :: -1 if n % 2 else 1] for n, x in enumerate(images)]).astype(np.float32)


def _lines(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Lines of text, channels first, in [-1, 1]."""
    images = [_line(rng, shape[1], shape[2]) for _ in range(count)]
    return _channels_first((np.stack(images) - 0.5) / 0.5)


def _turned_lines(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Lines of text, every other one upside down."""
    lines = _lines(rng, shape, count)
    lines[1::2] = lines[1::2, :, ::-1, ::-1]
    return lines


def _pages(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Several lines of text on photographs, normalized as for ImageNet, channels first."""
    images = [_page(rng, shape[1], shape[2]) for _ in range(count)]
    return _channels_first((np.stack(images) - _IMAGENET_MEAN) / _IMAGENET_STD)


def _files(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    """Both ends of files of this Python's libraries, as many kinds of files as there are."""
    groups = list(_library_files().values())
    order = [int(n) for n in rng.permutation(len(groups))]
    chosen = [groups[order[n % len(groups)]] for n in range(count)]
    paths = [group[int(rng.integers(len(group)))] for group in chosen]
    return np.stack([magika_features(path.read_bytes()) for path in paths])


def _speech(rng: np.random.Generator, shape: Sequence[int], count: int) -> np.ndarray:
    raise FileNotFoundError("no package of the study ships recorded speech")


def magika_features(content: bytes) -> np.ndarray:
    """The first and the last bytes of a file without white space at its ends, int32, (2048,)."""
    start, end = content[:_BLOCK].lstrip()[:_END], content[-_BLOCK:].rstrip()[-_END:]
    features = np.full(2 * _END, _PADDING, np.int32)
    features[: len(start)] = np.frombuffer(start, np.uint8)
    features[2 * _END - len(end) :] = np.frombuffer(end, np.uint8)
    return features


def _library_files() -> dict[str, list[Path]]:
    """Files of the standard library and of scikit-image's data by suffix, in order."""
    from skimage import data

    roots = [*Path(sysconfig.get_path("stdlib")).iterdir(), Path(data.__file__).parent]
    files = [
        path
        for root in sorted(roots)
        if root.name != "site-packages"
        for path in ([root] if root.is_file() else sorted(root.rglob("*")))
        if path.suffix and path.is_file() and path.stat().st_size >= 64
    ]
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(path.suffix, []).append(path)
    return groups


@functools.cache
def _photo(name: str) -> np.ndarray:
    """A photograph in RGB, in [0, 1]."""
    from skimage import color, data

    pixels = np.asarray(getattr(data, name)(), np.float32) / 255
    return pixels if pixels.ndim == 3 else color.gray2rgb(pixels)


def _resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    from skimage import transform

    return transform.resize(image, (height, width, *image.shape[2:]), anti_aliasing=True)


def _crop(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A part of some photograph, resized; every other one is of the astronaut."""
    name = "astronaut" if rng.random() < 0.5 else str(rng.choice(_PHOTOS))
    photo = _photo(name)
    rows, columns = photo.shape[:2]
    side = rng.uniform(0.4, 1) * min(rows, columns * height / width)
    part = int(side), int(side * width / height)
    top, left = (
        int(rng.integers(0, n - p + 1)) for n, p in zip((rows, columns), part, strict=True)
    )
    return _lit(rng, _resized(photo[top : top + part[0], left : left + part[1]], height, width))


def _around(
    rng: np.random.Generator, center: tuple[int, int], size: int, shape: Sequence[int]
) -> np.ndarray:
    """The astronaut around a point, shifted and scaled by up to a tenth and a fifth."""
    half = size / 2 * rng.uniform(0.8, 1.2)
    row, column = np.asarray(center) + rng.uniform(-0.1, 0.1, 2) * size
    window = _photo("astronaut")[
        max(int(row - half), 0) : int(row + half), max(int(column - half), 0) : int(column + half)
    ]
    return _lit(rng, _resized(window, shape[0], shape[1]))


def _lit(rng: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """An image in another light."""
    return np.clip(image * rng.uniform(0.7, 1.2) + rng.uniform(-0.1, 0.1), 0, 1)


def _line(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A line of text that fills an image, in a random font and colours."""
    image = _crop(rng, height, width) * rng.uniform(0, 0.3) + rng.uniform(0.5, 0.7)
    return _write(
        rng, image, (int(rng.integers(2, 8)), height * 0.1), height * rng.uniform(0.5, 0.7)
    )


def _page(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A photograph with lines of text, from the top to the bottom."""
    image, top = _crop(rng, height, width), float(rng.integers(4, 20))
    while top < height - 20:
        size = rng.uniform(12, 36)
        image = _write(rng, image, (int(rng.integers(0, width // 3)), top), size)
        top += size * rng.uniform(1.4, 3)
    return image


def _write(
    rng: np.random.Generator, image: np.ndarray, corner: tuple[float, float], size: float
) -> np.ndarray:
    """The image with dark or light words from a corner (x, y) on; the size is in pixels."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{rng.choice(_FONTS)}.ttf"
    canvas = Image.fromarray(np.uint8(255 * np.clip(image, 0, 1)))
    text = " ".join(rng.choice(_WORDS, int(rng.integers(2, 6))))
    ink = np.where(image.mean() < 0.5, 255, 0) + rng.integers(-60, 60, 3)
    ImageDraw.Draw(canvas).text(
        corner, text, font=ImageFont.truetype(path, size), fill=tuple(np.clip(ink, 0, 255).tolist())
    )
    return np.asarray(canvas, np.float32) / 255


def _channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(images, -1, 1), np.float32)


_KINDS: dict[str, Callable[[np.random.Generator, Sequence[int], int], np.ndarray]] = {
    "photos": _photos,
    "faces": _faces,
    "eyes": _eyes,
    "lines": _lines,
    "turned_lines": _turned_lines,
    "pages": _pages,
    "files": _files,
    "speech": _speech,
}
_PEOPLE: dict[str, Callable[[np.random.Generator, Sequence[int], int, Path], np.ndarray]] = {
    "hands": people.hands,
    "heads": people.heads,
    "palms": people.palms,
    "persons": people.persons,
    "persons_around_0": people.persons_around_0,
}
