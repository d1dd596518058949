"""launcher=yourname: nodes of this machine, each behind a command of your own. Options; the code is in launcher.py."""

from dataclasses import dataclass
from typing import ClassVar

from geomx.api import option
from geomx.config.surroundings import Local


@dataclass
class Yourname(Local):
    before: list[str] = option(["nice", "-n", "1"], "words before the command of each node")
    target: ClassVar[str] = "geomx_yourname.launcher:Launcher"
