#!/bin/sh
# Small tensors travel in 16 bits, large ones sparse between parties.
exec "$(dirname "$0")/../example.sh" cpu cnn_mpq.py "$@"
