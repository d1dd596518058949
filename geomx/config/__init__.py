"""The typed configuration: a dataclass for each choice of each group, and what makes a whole of them.

Imports neither Hydra nor the core, so that every node can afford it. `geomx.app` turns what Hydra composed into a
`Config`; `load` does the same with the plain dict that travels in a node spec.
"""

from geomx.config.root import DEFAULTS, GROUPS, MANY, Config, Sweep, Target, Timeouts
from geomx.config.topology import CENTRAL, Flat, Hips, Party, Topology, host_of, parties
from geomx.config.whole import check_here, explicit, judge, load, settings

__all__ = [
    "CENTRAL",
    "DEFAULTS",
    "GROUPS",
    "MANY",
    "Config",
    "Flat",
    "Hips",
    "Party",
    "Sweep",
    "Target",
    "Timeouts",
    "Topology",
    "check_here",
    "explicit",
    "host_of",
    "judge",
    "load",
    "parties",
    "settings",
]
