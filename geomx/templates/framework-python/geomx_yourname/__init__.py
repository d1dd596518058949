"""framework=yourname: one linear layer in numpy. Options; the code is in adapter.py, which is imported late."""

from dataclasses import dataclass
from typing import ClassVar

from geomx.api import option


@dataclass
class Yourname:
    spread: float = option(0.01, "standard deviation of the first weights", at_least=0)
    target: ClassVar[str] = "geomx_yourname.adapter:make"
