"""A codec by itself, without a node: for predictions, benchmarks and tests."""

from geomx import _core
from geomx.api import CodecChoice, Compression, NativeCodec
from geomx.errors import ConfigError


def codec_of(options: Compression, choice: CodecChoice, answer: str = "gradients") -> _core.Codec:
    """What the compression's policy chose, among the codecs that it brings. answer: as `_core.Codec` takes it. Raises
    ConfigError where it brings none that can be made so."""
    if choice.name == "identity":
        return _core.Codec("identity")
    reasons = []
    for codec in options.codecs():
        try:
            if isinstance(codec, NativeCodec):
                return _core.Codec(choice.name, choice.params, plugin=str(codec.path), answer=answer)
            if codec.name == choice.name:
                return _core.Codec(choice.name, choice.params, make=codec.make, answer=answer)
        except _core.Error as e:
            reasons.append(str(e))
    brought = "; ".join(reasons) or f"it brings {', '.join(map(str, options.codecs())) or 'none'}"
    raise ConfigError(f"the policy names the codec {choice.name}, expected among what codecs() brings: {brought}")
