"""A CNN with gradients that are sparse between parties, both ways: push the gradient, pull the sum, step locally.

    python -m geomx.exec examples/cnn_bsc.py --cpu --data-slice-idx 0      with the seed's DMLC_* variables set
    bash launchers/cpu/run_bisparse_compression.sh    a whole run on this machine

Trains on scikit-learn's digits, or on MNIST where its files are in ~/.mxnet/datasets/mnist. The master worker sets the
compression; how large a tensor must be to be sparse, MXNET_KVSTORE_SIZE_LOWER_BOUND says (1000).
"""

import argparse
import time

import numpy as np

from geomx.mxnet import mx  # with python -m geomx.exec, `import mxnet as mx` does as well

autograd, gluon, Trainer = mx.autograd, mx.gluon, mx.gluon.Trainer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-lr", "--learning-rate", type=float, default=0.01)
    parser.add_argument("-bs", "--batch-size", type=int, default=32)
    parser.add_argument("-ds", "--data-slice-idx", type=int, help="which share of the data is this worker's; its rank")
    parser.add_argument("-ep", "--epoch", type=int, default=5)
    parser.add_argument("-sc", "--split-by-class", action="store_true", help="each worker gets its own classes")
    parser.add_argument("-c", "--cpu", action="store_true")
    parser.add_argument("-bcr", "--bisparse-compression-ratio", type=float, default=0.01)
    parser.add_argument("--eval-every", type=int, default=10, help="iterations between two evaluations")
    parser.add_argument("--data", choices=("auto", "digits", "mnist"), default="auto")
    return parser.parse_args()


def load_data(which):
    from geomx.config.task import Mnist
    from geomx.errors import ConfigError
    from geomx.tasks import digits, mnist

    if which != "digits":
        try:
            return mnist.make(Mnist()).data
        except ConfigError:
            if which == "mnist":
                raise
    return digits.load()


def build_net(pixels, context):
    padding = 2 if pixels < 20 else 0
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, kernel_size=5, padding=padding, activation="relu"),
        gluon.nn.MaxPool2D(pool_size=2, strides=2),
        gluon.nn.Conv2D(32, kernel_size=5, padding=padding, activation="relu"),
        gluon.nn.MaxPool2D(pool_size=2, strides=2),
        gluon.nn.Dense(256, activation="relu"),
        gluon.nn.Dense(128, activation="relu"),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier(), ctx=context)
    return net


def batches(data, args, num_all_workers, context, epoch):
    from geomx.tasks import share

    mine = share(data.train_y, args.data_slice_idx, num_all_workers, "class" if args.split_by_class else "iid", seed=1)
    mine = np.random.default_rng(epoch).permutation(mine)  # a share by class is in the classes' order
    for start in range(0, len(mine), args.batch_size):
        at = mine[start : start + args.batch_size]
        yield mx.nd.array(data.train_x[at], ctx=context), mx.nd.array(data.train_y[at], ctx=context)


def accuracy(net, data, context):
    right = 0
    for start in range(0, len(data.test_y), 500):
        out = net(mx.nd.array(data.test_x[start : start + 500], ctx=context))
        right += (out.asnumpy().argmax(1) == data.test_y[start : start + 500]).sum()
    return right / len(data.test_y)


class Batches:
    """This worker's batches, in another order each epoch."""

    def __init__(self, data, args, num_all_workers, context):
        self.data, self.args, self.num_all_workers, self.context = data, args, num_all_workers, context
        self.epoch = -1

    def __iter__(self):
        self.epoch += 1
        return batches(self.data, self.args, self.num_all_workers, self.context, self.epoch)


class Progress:
    """Prints a line every so many iterations, and one at the end."""

    def __init__(self, net, data, args, context):
        self.net, self.data, self.args, self.context = net, data, args, context
        self.began, self.iteration = time.time(), 0

    def step(self, epoch):
        self.iteration += 1
        if self.iteration % self.args.eval_every == 0:
            print(
                f"[Time {time.time() - self.began:.3f}][Epoch {epoch}][Iteration {self.iteration}] "
                f"Test Acc {accuracy(self.net, self.data, self.context):.4f}",
                flush=True,
            )

    def end(self):
        print(
            f"finished: {self.iteration} iterations, Test Acc {accuracy(self.net, self.data, self.context):.4f}",
            flush=True,
        )


def main():
    args = arguments()
    lr, batch_size, num_epochs = args.learning_rate, args.batch_size, args.epoch
    context = mx.cpu() if args.cpu else mx.gpu(0)
    data = load_data(args.data)
    mx.random.seed(1)  # workers that don't exchange their first weights draw the same ones
    net = build_net(data.train_x.shape[2], context)
    net(mx.nd.array(data.train_x[:1], ctx=context))  # shapes are known after this
    net_params = list(net.collect_params().values())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    # Initialize distributed kvstore in synchronous mode.
    kvstore_dist = mx.kv.create("dist_sync")

    # Obtain the total number of training nodes.
    num_all_workers = kvstore_dist.num_all_workers

    # Master worker enables bidirectional gradient sparsification on the global parameter server.
    if kvstore_dist.is_master_worker:
        kvstore_dist.set_gradient_compression({"type": "bsc", "threshold": args.bisparse_compression_ratio})

    # Define local trainer to use Adam optimizer.
    optimizer = mx.optimizer.Adam(learning_rate=lr)
    trainer = Trainer(net.collect_params(), optimizer=optimizer)
    if args.data_slice_idx is None:
        args.data_slice_idx = kvstore_dist.global_rank if kvstore_dist.trains else 0
    train_iter, progress = Batches(data, args, num_all_workers, context), Progress(net, data, args, context)

    for epoch in range(num_epochs):
        for _, batch in enumerate(train_iter):
            # Perform forward and backward propagation to calculate gradients.
            with autograd.record():
                loss = loss_of(net(batch[0]), batch[1])
            loss.backward()
            # Synchronize gradients for gradient aggregation.
            for idx, param in enumerate(net_params):
                if param.grad_req == "null":
                    continue
                kvstore_dist.push(idx, param.grad(), priority=-idx)
                kvstore_dist.pull(idx, param.grad(), priority=-idx)
            # Use aggregated gradients to update local model parameters.
            trainer.step(num_all_workers * batch_size)
            # Put gradients to zero manually.
            for param in net_params:
                param.zero_grad()
            progress.step(epoch)
    progress.end()


if __name__ == "__main__":
    main()
