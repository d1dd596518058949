#!/bin/sh
# What contributes little to a gradient may get lost between parties; it then goes into the next round.
exec "$(dirname "$0")/../example.sh" cpu cnn.py transport=dgt transport.channels=3 transport.k=0.8 \
  transport.adaptive_k=true "$@"
