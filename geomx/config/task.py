"""What is trained: options of the built-in tasks. The code behind them is in geomx.tasks."""

import importlib
from dataclasses import dataclass
from typing import ClassVar

from geomx.options import option


@dataclass
class Training:
    """What all tasks share. A run ends after `epochs`, or after `max_rounds` steps of each worker if that is less."""

    batch_size: int = option(32, "samples of a step on each worker", at_least=1)
    epochs: int = option(10, "passes over each worker's share of the data", at_least=1)
    max_rounds: int = option(0, "steps of each worker at most; 0: as many as the epochs have", at_least=0)
    eval_every: int = option(20, "steps between two evaluations on the test set; 0: only at the end", at_least=0)
    split: str = option("iid", "iid: shuffled; class: each worker gets its own classes", one_of=("iid", "class"))


@dataclass
class Digits(Training):
    """task=digits: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels; needs no download."""

    epochs: int = option(20, "passes over each worker's share of the data", at_least=1)
    pixels: int = option(8, "8: as they are; 28: enlarged to MNIST's size", one_of=(8, 28))
    model: str = option("seed", "seed: the seed's network; large: wider, about 5 million parameters at 28 pixels",
                        one_of=("seed", "large"))  # fmt: skip
    target: ClassVar[str] = "geomx.tasks.digits:make"


@dataclass
class Charlm(Training):
    """task=charlm: which character comes next, in text. Accuracy is the share of right guesses in files that nobody
    trains on. split=class: each worker gets its own files. Without `text` the corpus is this Python's own library,
    so it is the same on each machine that has the same Python."""

    batch_size: int = option(128, "samples of a step on each worker", at_least=1)
    epochs: int = option(1, "passes over each worker's share of the text", at_least=1)
    eval_every: int = option(50, "steps between two evaluations; 0: only at the end", at_least=0)
    text: str = option("", "a file, or a folder whose *.py, *.txt and *.md are read; empty: the standard library")
    characters: int = option(800_000, "to train on at most; a twentieth as many to test on", at_least=1000)
    context: int = option(16, "characters that a guess is made from", at_least=1, at_most=256)
    target: ClassVar[str] = "geomx.tasks.charlm:make"


@dataclass
class Images(Training):
    """Data sets that are read from local files."""

    batch_size: int = option(64, "samples of a step on each worker", at_least=1)
    data_dir: str = option("", "folder with the files; empty: ~/.mxnet/datasets/<name>, MXNet's own place")

    def check_here(self) -> None:
        """Raises ConfigError where the files are not on this machine."""
        module = importlib.import_module(getattr(self, "target").partition(":")[0])  # noqa: B009  of the subclasses
        module.check_here(self)


@dataclass
class Mnist(Images):
    """task=mnist: 70,000 handwritten digits of 28 x 28 pixels, from the data set's own files."""

    target: ClassVar[str] = "geomx.tasks.mnist:make"


@dataclass
class FashionMnist(Images):
    """task=fashion_mnist: 70,000 pictures of clothes of 28 x 28 grey pixels, ten classes; the data set's files."""

    target: ClassVar[str] = "geomx.tasks.fashion_mnist:make"


@dataclass
class Cifar10(Images):
    """task=cifar10: 60,000 photographs of 32 x 32 pixels in colour, ten classes, from the data set's own files."""

    target: ClassVar[str] = "geomx.tasks.cifar10:make"


@dataclass
class Synthetic:
    """task=synthetic: the tensors of a known model, random gradients, a stated time to compute them."""

    shapes: str = option("resnet50", "whose tensors", one_of=("resnet50", "vgg16", "bert_base"))
    compute_ms: float = option(0.0, "that a step computes before it synchronises", at_least=0)
    batch_size: int = option(32, "samples that a step counts as", at_least=1)
    max_rounds: int = option(10, "steps of each worker", at_least=1)
    target: ClassVar[str] = "geomx.tasks.synthetic:make"


@dataclass
class Script:
    """task=script: an own script, unchanged, is each worker, as with `python -m geomx.exec`. It prints what it likes
    into its node's log; rounds and losses are known only if it reports them."""

    script: str = option("???", "file; relative to where the run was started")
    arguments: list[str] = option([], "words that the script finds in sys.argv")
    target: ClassVar[str] = ""


@dataclass
class Mxnet:
    """framework=mxnet: MXNet 1.9.1's arrays and networks; push and pull are operations of its engine."""

    context: str = option("cpu", "where tensors live", one_of=("cpu", "gpu"))
    target: ClassVar[str] = "geomx.frameworks.mxnet:make"


@dataclass
class Numpy:
    """framework=numpy: a small reference model without any framework."""

    target: ClassVar[str] = "geomx.frameworks.numpy:make"
