#!/bin/sh
# The model lies on two global servers: no server's link carries all of it.
exec "$(dirname "$0")/../example.sh" gpu cnn.py topology=multigps "$@"
