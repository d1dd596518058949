#!/bin/sh
# Half the bytes between parties and inside them: values travel in 16 bits.
exec "${PYTHON:-python}" -m geomx.run compression=fp16 "$@"
