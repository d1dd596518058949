"""The user-space engine: every node's transport shapes what leaves and enters its party (geomx/core/shaper.h). Needs no
root, on any machine, and all nodes on one."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomx.wan.plan import Wan
from geomx.wan.selftest import Expected, Measured, report

if TYPE_CHECKING:
    from geomx import _core

ENGINE = "shaper"
PINGS = 5
BULK_S = 0.4  # that the bulk of the self-test takes on its link
MOST_PATHS = 4  # that the self-test measures: one of each kind, the slowest first


class Shaped:
    """The links of one run: a file that its nodes share, until `close`."""

    def __init__(self, wan: Wan) -> None:
        from geomx import _core

        self._folder = Path(tempfile.mkdtemp(prefix="geomx-wan-"))
        self.file, self._wan = str(self._folder / "links"), wan
        self._measured = self_test(wan)
        _core.make_wan_links(self.file, len(wan.parties))

    def told(self) -> dict[str, Any]:
        """For summary.json."""
        return {"engine": ENGINE, "queue_bytes": dict(zip(self._wan.parties, self._wan.queue_bytes, strict=True)),
                "self_test": self._measured}  # fmt: skip

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def shape(wan: Wan, file: str, party: str, seed: int) -> "_core.WanShape":
    """What a node's transport is told."""
    from geomx import _core

    return _core.WanShape(
        file=file,
        party=wan.index(party),
        up=wan.up,
        down=wan.down,
        queue_bytes=wan.queue_bytes,
        paths=[(p.delay_us, p.jitter_us, p.loss, p.burst) for row in wan.paths for p in row],
        trace=[(c.at_us, c.bytes_per_s, c.delay_us, c.loss) for c in wan.trace],
        shares=[(i, at_us, share) for i, changes in enumerate(wan.shares) for at_us, share in changes],
        seed=seed,
    )


def self_test(wan: Wan) -> list[dict[str, Any]]:
    """Real messages over a path of each kind, in this process."""
    from geomx import _core

    rows = []
    for a, b, expected in paths_to_test(wan):
        bulk = int((expected.bytes_per_s or 1e9) * BULK_S)
        deadline_s = 20 + 2 * BULK_S + (PINGS + 3) * 2 * expected.delay_us / 1e6
        bytes_per_s, delay_us = _core.probe_wan_shape(
            shape(wan, "", a, 1), wan.index(a), wan.index(b), bulk, PINGS, deadline_s
        )
        rows.append(report(a, b, expected, Measured(bytes_per_s, delay_us, None)))
    return rows


def paths_to_test(wan: Wan) -> list[tuple[str, str, Expected]]:
    """(from, to, what is expected there): both ways between each party and the central one, of equal paths the first,
    the slowest ones where they are many."""
    central = wan.parties[-1]
    found: dict[Expected, tuple[str, str]] = {}
    for party in wan.parties[:-1]:
        for a, b in ((party, central), (central, party)):
            found.setdefault(Expected.of(wan, a, b), (a, b))
    slowest = sorted(found, key=lambda e: e.bytes_per_s or float("inf"))[:MOST_PATHS]
    return [(*found[e], e) for e in slowest]
