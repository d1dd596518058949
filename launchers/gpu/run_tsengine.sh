#!/bin/sh
# Parties merge and pass on each other's values, as the links between them allow.
exec "$(dirname "$0")/../example.sh" gpu cnn.py scheduler=tsengine topology.parties=4 topology.workers=1 "$@"
