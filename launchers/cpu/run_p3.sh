#!/bin/sh
# What the next forward pass needs first, travels first; the rest follows while it computes.
exec "$(dirname "$0")/../example.sh" cpu cnn.py scheduler=p3 "$@"
