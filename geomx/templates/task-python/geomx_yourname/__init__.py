"""task=yourname: which of four ways stripes go, in small images under noise. Options; the data is made in task.py."""

from dataclasses import dataclass
from typing import ClassVar

from geomx.api import option
from geomx.config.task import Training


@dataclass
class Yourname(Training):
    samples: int = option(2000, "images to train on; a quarter as many to test on", at_least=16)
    noise: float = option(0.3, "standard deviation of what is added to each pixel", at_least=0)
    target: ClassVar[str] = "geomx_yourname.task:make"
