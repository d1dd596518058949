"""The loops that the seed's page prints, taken from the page and filled in where it has dots, so that they can run.

    python tests/seed_page.py bsc --compression '{"type": "fp16"}' > loop.py
    python -m geomx.exec loop.py

What is filled in stands before the printed code (data, network, numbers), at its dots (forward and backward) and after
it (one line with accuracy and the weights' hash). The printed lines stay as they are, but for the compression's
parameters where the caller gives others.
"""

import argparse
import json
import re
from pathlib import Path

PAGE = Path(__file__).parent / "data" / "seed.zh.txt"
LOOPS = ("bsc", "fp16", "mpq")  # in the page's order
_PRINTED_TYPE = re.compile(r'\{"type": "bsc", "threshold": [\w.]+\}')

BEFORE = '''
import mxnet as _mxnet
from mxnet import autograd, gluon
from mxnet.gluon import Trainer
from geomx.tasks import digits, share

lr, batch_size, num_epochs, compression_ratio = {lr}, 32, {epochs}, 0.01
_mxnet.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(16, 5, padding=2, activation="relu"), gluon.nn.MaxPool2D(2, 2), gluon.nn.Flatten(),
        gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
net.initialize(_mxnet.init.Xavier())
_data = digits.load()
net(_mxnet.nd.array(_data.train_x[:1]))
net_params = list(net.collect_params().values())
_entropy = gluon.loss.SoftmaxCrossEntropyLoss()


class _Batches:
    """This worker's share, the same batches in each epoch."""

    def __iter__(self):
        rank = 0 if kvstore_dist.is_master_worker else kvstore_dist.global_rank
        mine = share(_data.train_y, rank, kvstore_dist.num_all_workers, "class", 1)
        for start in range(0, len(mine) // batch_size * batch_size, batch_size):
            at = mine[start : start + batch_size]
            yield _mxnet.nd.array(_data.train_x[at]), _mxnet.nd.array(_data.train_y[at])


train_iter = _Batches()
{given}
'''
# The fp16 and mpq loops step with a trainer that their page prints in the first loop only.
TRAINER = "trainer = Trainer(net.collect_params(), optimizer=_mxnet.optimizer.Adam(learning_rate=lr))\n"
COUNT = "num_all_workers = kvstore_dist.num_all_workers\n"
AT_DOTS = """with autograd.record():
    _loss = _entropy(net(batch[0]), batch[1])
_loss.backward()"""
AFTER = """
import hashlib as _hashlib
_right = (net(_mxnet.nd.array(_data.test_x)).asnumpy().argmax(1) == _data.test_y).mean()
_hash = _hashlib.sha256(b"".join(p.data().asnumpy().tobytes() for p in net_params)).hexdigest()
print(f"accuracy {_right:.4f} weights {_hash} master {kvstore_dist.is_master_worker}", flush=True)
"""


def printed(loop: str) -> str:
    """One of the page's code blocks, as printed."""
    return _blocks(PAGE.read_text(encoding="utf-8"))[LOOPS.index(loop)]


def filled(loop: str, epochs: int = 2, lr: float = 0.003, compression: dict[str, object] | None = None) -> str:
    """A script that runs. compression: instead of the printed parameters; None: as printed."""
    code = printed(loop)
    if compression is not None:
        code = _PRINTED_TYPE.sub(json.dumps(compression).replace("\\", "\\\\"), code)
    code = re.sub(r"^( +)\.\.\.$", lambda dots: _indented(AT_DOTS, dots[1]), code, flags=re.MULTILINE)
    if "num_all_workers =" not in code:
        code = re.sub(r"^(kvstore_dist = .*)$", rf"\1\n{COUNT}", code, flags=re.MULTILINE)
    given = "" if "trainer =" in code else TRAINER
    return BEFORE.format(lr=lr, epochs=epochs, given=given) + code + AFTER


def _blocks(page: str) -> list[str]:
    """Code on the page is what stands between lines of Chinese, from an import on."""
    found = []
    for piece in re.split(r"^.*[^\x00-\x7f].*$", page, flags=re.MULTILINE):
        start = re.search(r"^import ", piece, flags=re.MULTILINE)
        if start:
            found.append(piece[start.start() :].strip() + "\n")
    if len(found) != len(LOOPS):
        raise ValueError(f"{PAGE.name}: expected {len(LOOPS)} code blocks but found {len(found)}")
    return found


def _indented(code: str, by: str) -> str:
    return "\n".join(by + line for line in code.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--compression", type=json.loads, help="JSON instead of the printed parameters")
    parser.add_argument("--epochs", type=int, default=2)
    given = parser.parse_args()
    print(filled(given.loop, given.epochs, compression=given.compression))


if __name__ == "__main__":
    main()
