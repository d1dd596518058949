"""On PYTHONPATH of launcher tests: puts a scripted core and training loop in the place of the real ones.

So these tests see the launcher alone, and nodes that die, raise or hang exactly where a test says.
"""

import sys
from types import ModuleType


def _offer(name: str, source: str) -> None:
    module = ModuleType(name)
    namespace = __import__(source)
    module.__dict__.update({k: v for k, v in vars(namespace).items() if not k.startswith("__")})
    sys.modules[name] = module


_offer("geomx._core", "fake_core")
_offer("geomx.train", "fake_train")
