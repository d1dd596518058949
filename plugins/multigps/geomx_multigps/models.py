"""Shapes of the tensors of known models, in the order of their layers; for figures about balance."""

Shapes = list[tuple[str, tuple[int, ...]]]


def seed_cnn() -> Shapes:
    """The network of the examples, for 28 x 28 pixels (178,762 parameters)."""
    sizes = [("conv0", (16, 1, 5, 5)), ("conv1", (32, 16, 5, 5)), ("fc0", (256, 512)), ("fc1", (128, 256)),
             ("fc2", (10, 128))]  # fmt: skip
    return [pair for name, shape in sizes for pair in ((f"{name}.weight", shape), (f"{name}.bias", shape[:1]))]


def vgg16() -> Shapes:
    """Simonyan and Zisserman 2015, configuration D (138,357,544 parameters)."""
    shapes: Shapes = []
    inputs = 3
    for i, outputs in enumerate([64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]):
        shapes += [(f"conv{i}.weight", (outputs, inputs, 3, 3)), (f"conv{i}.bias", (outputs,))]
        inputs = outputs
    for i, (outputs, wide) in enumerate([(4096, 25088), (4096, 4096), (1000, 4096)]):
        shapes += [(f"fc{i}.weight", (outputs, wide)), (f"fc{i}.bias", (outputs,))]
    return shapes


def resnet50() -> Shapes:
    """He et al. 2016 (25,557,032 parameters)."""
    shapes = _convolution("stem", 64, 3, 7)
    inputs = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            shapes += _convolution(f"{name}.a", width, inputs, 1)
            shapes += _convolution(f"{name}.b", width, width, 3)
            shapes += _convolution(f"{name}.c", 4 * width, width, 1)
            if block == 0:
                shapes += _convolution(f"{name}.shortcut", 4 * width, inputs, 1)
            inputs = 4 * width
    return [*shapes, ("fc.weight", (1000, 2048)), ("fc.bias", (1000,))]


def _convolution(name: str, outputs: int, inputs: int, size: int) -> Shapes:
    """Without a bias; with the two vectors of its batch normalisation."""
    return [(f"{name}.weight", (outputs, inputs, size, size)), (f"{name}.gamma", (outputs,)),
            (f"{name}.beta", (outputs,))]  # fmt: skip


MODELS = {"seed_cnn": seed_cnn(), "resnet50": resnet50(), "vgg16": vgg16()}
