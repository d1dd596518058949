"""A CNN with the optimizer on the global servers: push the gradient, pull the weights.

    python -m geomx.exec examples/cnn.py --cpu --data-slice-idx 0      with the seed's DMLC_* variables set
    python examples/cnn.py --cpu --data-slice-idx 0                    the same

Trains on scikit-learn's digits, or on MNIST where its files are in ~/.mxnet/datasets/mnist. The master worker sets the
optimizer and the first weights, and is done if the central party doesn't train.
"""

import argparse
import time

import numpy as np

from geomx.mxnet import mx  # with python -m geomx.exec, `import mxnet as mx` does as well

autograd, gluon = mx.autograd, mx.gluon


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-lr", "--learning-rate", type=float, default=0.01)
    parser.add_argument("-bs", "--batch-size", type=int, default=32)
    parser.add_argument("-ds", "--data-slice-idx", type=int, help="which share of the data is this worker's; its rank")
    parser.add_argument("-ep", "--epoch", type=int, default=5)
    parser.add_argument("-sc", "--split-by-class", action="store_true", help="each worker gets its own classes")
    parser.add_argument("-c", "--cpu", action="store_true")
    parser.add_argument("-ms", "--mixed-sync", action="store_true", help="parties don't wait for each other")
    parser.add_argument("-dc", "--dcasgd", action="store_true", help="mixed sync with delay compensation")
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


def main():
    args = arguments()
    context = mx.cpu() if args.cpu else mx.gpu(0)
    kvstore_dist = mx.kv.create("dist_async" if args.mixed_sync or args.dcasgd else "dist_sync")
    num_all_workers = kvstore_dist.num_all_workers
    data = load_data(args.data)
    net = build_net(data.train_x.shape[2], context)
    net(mx.nd.array(data.train_x[:1], ctx=context))  # shapes are known after this

    if kvstore_dist.is_master_worker:
        make = mx.optimizer.DCASGD if args.dcasgd else mx.optimizer.Adam
        kvstore_dist.set_optimizer(make(learning_rate=args.learning_rate, rescale_grad=1 / num_all_workers))
    params = [p for p in net.collect_params().values() if p.grad_req != "null"]
    for idx, param in enumerate(params):
        kvstore_dist.init(idx, param.data())
        kvstore_dist.pull(idx, param.data(), priority=-idx)
    if not kvstore_dist.trains:
        return
    if args.data_slice_idx is None:
        args.data_slice_idx = kvstore_dist.global_rank

    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    began, iteration = time.time(), 0
    for epoch in range(args.epoch):
        for x, y in batches(data, args, num_all_workers, context, epoch):
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            for idx, param in enumerate(params):
                kvstore_dist.push(idx, param.grad() / len(y), priority=-idx)
                kvstore_dist.pull(idx, param.data(), priority=-idx)
            iteration += 1
            if iteration % args.eval_every == 0:
                print(
                    f"[Time {time.time() - began:.3f}][Epoch {epoch}][Iteration {iteration}] "
                    f"Test Acc {accuracy(net, data, context):.4f}",
                    flush=True,
                )
    print(f"finished: {iteration} iterations, Test Acc {accuracy(net, data, context):.4f}", flush=True)


if __name__ == "__main__":
    main()
