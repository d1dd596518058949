"""What plugins bring to a node; how nodes ask them is in tests/cluster."""

from pathlib import Path

from geomx.api import NativeCodec, NativePlugin, PythonCodec
from geomx.policies import _Loaded


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
