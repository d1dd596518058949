#!/bin/sh
# The plain hierarchy: sums inside a party, sums between parties, the optimizer on the global server.
exec "$(dirname "$0")/../example.sh" gpu cnn.py "$@"
