"""The networks of the study: where each is from, and what it takes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.ptq_zoo import tasks
from benchmarks.ptq_zoo.tasks import Task

# Wheels are read as archives and never installed, so those of any Python do.
_DOWNLOAD = [
    *("download", "--quiet", "--no-deps", "--only-binary=:all:"),
    *("--python-version", "3.11", "--implementation", "cp"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
]
_RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
_MAGIKA = "magika==1.0.3"
_SILERO = "silero-vad==6.2.3"
_MEDIAPIPE = "mediapipe==0.10.14"


@dataclasses.dataclass(frozen=True)
class Network:
    """A float network in the file that its authors ship.

    Args:
      wheel: the requirement of the package that holds the file.
      path: of the file in the wheel.
      inputs: the kind of inputs, a function of `inputs.py`.
      shape: of one example, with its batch of 1, in the file's own layout.
      task: what its outputs are for; None where nothing is compared but the outputs.
    """

    wheel: str
    path: str
    inputs: str
    shape: tuple[int, ...]
    task: Task | None = None

    @property
    def is_onnx(self) -> bool:
        return self.path.endswith(".onnx")


def _mediapipe(path: str, inputs: str, size: int, task: Task) -> Network:
    path = f"mediapipe/modules/{path}.tflite"
    return Network(_MEDIAPIPE, path, inputs, (1, size, size, 3), task)


def _rapidocr(name: str, inputs: str, *shape: int, task: Task) -> Network:
    path = f"rapidocr_onnxruntime/models/{name}_infer.onnx"
    return Network(_RAPIDOCR, path, inputs, (1, 3, *shape), task)


NETWORKS = {
    "ppocr_cls": _rapidocr(
        "ch_ppocr_mobile_v2.0_cls", "turned_lines", 48, 192, task=tasks.argmax()
    ),
    "ppocr_det": _rapidocr("ch_PP-OCRv4_det", "pages", 320, 320, task=tasks.mask(0.3)),
    "ppocr_rec": _rapidocr("ch_PP-OCRv4_rec", "lines", 48, 320, task=tasks.argmax()),
    "magika": Network(
        _MAGIKA, "magika/models/standard_v3_3/model.onnx", "files", (1, 2048), tasks.argmax()
    ),
    "silero_vad": Network(
        _SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx", "speech", (1, 576)
    ),
    "face_detection": _mediapipe(
        "face_detection/face_detection_short_range", "heads", 128, tasks.boxes()
    ),
    "face_detection_sparse": _mediapipe(
        "face_detection/face_detection_full_range_sparse", "heads", 192, tasks.boxes()
    ),
    "face_landmark": _mediapipe(
        "face_landmark/face_landmark", "faces", 192, tasks.landmarks(3, 192)
    ),
    "hand_landmark": _mediapipe(
        "hand_landmark/hand_landmark_lite", "hands", 224, tasks.landmarks(3, 224)
    ),
    "hand_recrop": _mediapipe(
        "holistic_landmark/hand_recrop", "hands", 256, tasks.landmarks(2, 256)
    ),
    "iris_landmark": _mediapipe("iris_landmark/iris_landmark", "eyes", 64, tasks.landmarks(3, 64)),
    "palm_detection": _mediapipe("palm_detection/palm_detection_lite", "palms", 192, tasks.boxes()),
    "pose_detection": _mediapipe(
        "pose_detection/pose_detection", "persons_around_0", 224, tasks.boxes()
    ),
    "pose_landmark": _mediapipe(
        "pose_landmark/pose_landmark_full", "persons", 256, tasks.landmarks(5, 256)
    ),
    "selfie_segmentation": _mediapipe(
        "selfie_segmentation/selfie_segmentation", "photos", 256, tasks.mask(0.5)
    ),
}


def fetch(network: Network, cache: Path, zoo: Path | None) -> bytes:
    """The file of a network: from a folder of files, else from its wheel, which is downloaded.

    Args:
      network: the network.
      cache: the folder of wheels.
      zoo: a folder that may hold the file under its own name.

    Raises:
      subprocess.CalledProcessError: pip could not download the wheel.
      KeyError: the wheel does not hold the file.
    """
    local = zoo / Path(network.path).name if zoo else None
    if local is not None and local.exists():
        return local.read_bytes()
    return from_wheel(network.wheel, network.path, cache)


def from_wheel(requirement: str, path: str, cache: Path) -> bytes:
    """A file of a wheel, which is downloaded where `cache` does not have it.

    Raises:
      subprocess.CalledProcessError: pip could not download the wheel.
      KeyError: the wheel does not hold the file.
    """
    with zipfile.ZipFile(_wheel(requirement, cache / "wheels")) as archive:
        return archive.read(path)


def _wheel(requirement: str, folder: Path) -> Path:
    """The wheel of a requirement, downloaded where the folder does not have it."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", *_DOWNLOAD, "--dest", str(folder), requirement]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob(pattern))
