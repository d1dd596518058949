#!/bin/sh
# Gradients are sparse between parties, towards the global server and back.
exec "$(dirname "$0")/../example.sh" cpu cnn_bsc.py "$@"
