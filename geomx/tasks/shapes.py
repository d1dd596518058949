"""The tensors of three known models, in the order in which their layers run, as (name, shape).

resnet50: 25,557,032 parameters in 161 tensors. vgg16: 138,357,544 in 32. bert_base: 109,482,240 in 199.
"""

Tensors = list[tuple[str, tuple[int, ...]]]


def resnet50() -> Tensors:
    found = _conv_norm("conv0", 64, 3, 7)
    width_in = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
        for block in range(blocks):
            name = f"stage{stage}.block{block}"
            found += _conv_norm(f"{name}.conv0", width, width_in, 1)
            found += _conv_norm(f"{name}.conv1", width, width, 3)
            found += _conv_norm(f"{name}.conv2", 4 * width, width, 1)
            if block == 0:
                found += _conv_norm(f"{name}.shortcut", 4 * width, width_in, 1)
            width_in = 4 * width
    return found + _dense("fc", 1000, 2048)


def vgg16() -> Tensors:
    found: Tensors = []
    width_in = 3
    for i, width in enumerate([64, 64, 128, 128, 256, 256, 256, *[512] * 6]):
        found += [(f"conv{i}.weight", (width, width_in, 3, 3)), (f"conv{i}.bias", (width,))]
        width_in = width
    return found + _dense("fc0", 4096, 512 * 7 * 7) + _dense("fc1", 4096, 4096) + _dense("fc2", 1000, 4096)


def bert_base() -> Tensors:
    width = 768
    found: Tensors = [("words", (30522, width)), ("positions", (512, width)), ("segments", (2, width))]
    found += _norm("embedding.norm", width)
    for i in range(12):
        name = f"layer{i}"
        for part in ("query", "key", "value", "output"):
            found += _dense(f"{name}.{part}", width, width)
        found += _norm(f"{name}.norm0", width)
        found += _dense(f"{name}.up", 4 * width, width) + _dense(f"{name}.down", width, 4 * width)
        found += _norm(f"{name}.norm1", width)
    return found + _dense("pooler", width, width)


def _dense(name: str, units: int, inputs: int) -> Tensors:
    return [(f"{name}.weight", (units, inputs)), (f"{name}.bias", (units,))]


def _norm(name: str, width: int) -> Tensors:
    return [(f"{name}.gamma", (width,)), (f"{name}.beta", (width,))]


def _conv_norm(name: str, channels: int, inputs: int, kernel: int) -> Tensors:
    return [(f"{name}.weight", (channels, inputs, kernel, kernel)), *_norm(name, channels)]


MODELS = {"resnet50": resnet50, "vgg16": vgg16, "bert_base": bert_base}
