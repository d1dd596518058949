#!/bin/sh
# Half the bytes between parties and inside them: values travel in 16 bits.
exec "$(dirname "$0")/../example.sh" gpu cnn_fp16.py "$@"
