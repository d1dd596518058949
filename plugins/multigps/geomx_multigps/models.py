"""The models for which loads are judged."""

from geomx.tasks.shapes import MODELS as KNOWN
from geomx.tasks.shapes import Tensors


def seed_cnn() -> Tensors:
    """The network of the examples, for 28 x 28 pixels (178,762 parameters)."""
    sizes = [("conv0", (16, 1, 5, 5)), ("conv1", (32, 16, 5, 5)), ("fc0", (256, 512)), ("fc1", (128, 256)),
             ("fc2", (10, 128))]  # fmt: skip
    return [pair for name, shape in sizes for pair in ((f"{name}.weight", shape), (f"{name}.bias", shape[:1]))]


MODELS: dict[str, Tensors] = {"seed_cnn": seed_cnn(), "resnet50": KNOWN["resnet50"](), "vgg16": KNOWN["vgg16"]()}
