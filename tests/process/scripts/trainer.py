"""A plain gluon training script: a Trainer with a distributed store. Prints accuracy and the weights' hash."""

import argparse
import hashlib

import mxnet as mx
from mxnet import autograd, gluon

from geomx.tasks import digits, share

parser = argparse.ArgumentParser()
parser.add_argument("--store", default="dist_sync")
parser.add_argument("--on", choices=("server", "worker"), default="server")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--slice", type=int, default=0)
args = parser.parse_args()

kv = mx.kv.create(args.store)
mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Flatten(), gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
net.initialize(mx.init.Xavier())
data = digits.load()
trainer = gluon.Trainer(
    net.collect_params(), mx.optimizer.Adam(learning_rate=0.003), kvstore=kv, update_on_kvstore=args.on == "server"
)
entropy = gluon.loss.SoftmaxCrossEntropyLoss()
mine = share(data.train_y, args.slice, kv.num_all_workers, "iid", 1)
for _ in range(args.epochs):
    for start in range(0, len(mine) // 32 * 32, 32):
        at = mine[start : start + 32]
        x, y = mx.nd.array(data.train_x[at]), mx.nd.array(data.train_y[at])
        with autograd.record():
            loss = entropy(net(x), y)
        loss.backward()
        trainer.step(32 * kv.num_all_workers)
found = net(mx.nd.array(data.test_x)).asnumpy().argmax(1)
weights = b"".join(p.data().asnumpy().tobytes() for p in net.collect_params().values())
accuracy = (found == data.test_y).mean()
print(f"rank {kv.global_rank} accuracy {accuracy:.4f} weights {hashlib.sha256(weights).hexdigest()}", flush=True)
