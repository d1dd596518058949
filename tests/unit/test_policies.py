"""What plugins bring to a node; how nodes ask them is in tests/cluster."""

from pathlib import Path

from geomx.api import NativeCodec, NativePlugin, PythonCodec
from geomx.config import load
from geomx.policies import Schedulers, _Loaded


class Node:
    def __init__(self):
        self.loaded = []

    def load_plugin(self, path):
        self.loaded.append(path)

    def add_codec(self, name, make):
        self.loaded.append(name)


def test_a_library_of_two_kinds_and_a_codec_that_is_asked_for_again_are_loaded_once():
    node = Node()
    loaded = _Loaded(node)
    library, codec = Path("lib.so"), PythonCodec("mine", dict)
    loaded.need([NativeCodec(library), codec])
    loaded.need([NativePlugin(library), codec, NativePlugin(Path("other.so"))])
    assert node.loaded == ["lib.so", "mine", "other.so"]


def test_a_credit_beyond_all_bounds_binds_nothing():
    schedulers = Schedulers("party0")
    schedulers.use(load({"scheduler": {"fifo": {"credit_kb": 10**20}}}))
    assert schedulers.credit("wan") == (1 << 50, False, False)
