"""Which suites a distribution must pass, by what it offers. `python -m geomx.plugin check` runs them; so does

from geomx.testing.suites import suites
globals().update(suites("geomx-mine"))
"""

from importlib.metadata import distribution
from typing import Any

import numpy as np

from geomx import _core, plugins
from geomx.api import WIDTHS, CodecChoice, Compression, Promise
from geomx.testing.codec_suite import CodecSuite, drawn
from geomx.testing.framework_suite import FrameworkSuite
from geomx.testing.launcher_suite import LauncherSuite
from geomx.testing.observer_suite import ObserverSuite
from geomx.testing.overlay_suite import OverlaySuite
from geomx.testing.placement_suite import PlacementSuite
from geomx.testing.plugin_suite import PluginSuite
from geomx.testing.policy_suite import PolicySuite, choices, codec_behind
from geomx.testing.scheduler_suite import SchedulerSuite
from geomx.testing.task_suite import TaskSuite
from geomx.testing.transport_suite import TransportSuite

SUITES = {"compression": PolicySuite, "transport": TransportSuite, "topology": PlacementSuite,
          "tracking": ObserverSuite, "launcher": LauncherSuite, "task": TaskSuite,
          "framework": FrameworkSuite}  # fmt: skip

DRAIN = 2000  # rounds that a residual has, where nobody promises less


def offered(name: str) -> list[tuple[str, str]]:
    """(group, choice) of a distribution's entry points, in order. Raises PackageNotFoundError."""
    entries = distribution(name).entry_points.select(group=plugins.ENTRY_POINTS)
    return sorted((e.name.partition(".")[0], e.name.partition(".")[2]) for e in entries)


def suites(name: str) -> dict[str, type]:
    """Test classes by the titles that they are told by. What has no suite of its kind keeps what all options must;
    benchmarks have none."""
    found: dict[str, type] = {}
    for group, choice in offered(name):
        if group not in plugins.FUNCTIONS:
            found |= _of_choice(group, choice)
    return {f"Test{i}": type(f"Test{i}", (cls,), {"title": title}) for i, (title, cls) in enumerate(found.items())}


def _of_choice(group: str, choice: str) -> dict[str, type]:
    options = plugins.options(group, {"name": choice})
    bases = _kinds(group, options)
    found: dict[str, type] = {}
    for base in bases:
        title = f"{group}={choice}" if len(bases) == 1 else f"{group}={choice} as {base.__name__}"
        found[title] = type("Suite", (base,), {"choice": f"{group}={choice}"})
    return found | (_of_codecs(options) if isinstance(options, Compression) else {})


def _kinds(group: str, options: Any) -> list[type[PluginSuite]]:
    """A scheduler plugin may fill two places."""
    if group == "scheduler":
        places = {"scheduler": SchedulerSuite, "overlay": OverlaySuite}
        return [suite for place, suite in places.items() if place in getattr(options, "fills", ("scheduler",))]
    return [SUITES.get(group, PluginSuite)]


def _of_codecs(options: Compression) -> dict[str, type]:
    """A suite for each codec that the policy names, with its promise; without one, what it does once is what it is
    held to. The codec of a choice that was already seen with other parameters is not tested again."""
    found: dict[str, type] = {}
    for choice in choices(options):
        promise = options.promises.get(choice.name) or measured(codec_behind(options, choice))
        found.setdefault(f"codec {choice.name}", _codec_suite(options, choice, promise))
    return found


def _codec_suite(options: Compression, choice: CodecChoice, promised: Promise) -> type:
    def make(self: Any) -> _core.Codec:
        return codec_behind(options, choice)

    return type("Suite", (CodecSuite,), {"promise": promised, "make": make})


def measured(codec: _core.Codec) -> Promise:
    """What a codec does to one tensor, as if it were promised."""
    dtypes = tuple(d for d in ("float32", "float64") if codec.takes(d))
    refused = any(codec.takes(d) for d in WIDTHS if d not in dtypes and not d.endswith("float16"))
    if not dtypes or refused:
        dtypes = tuple(d for d in WIDTHS if codec.takes(d) and not d.endswith("float16"))
    values = drawn(4096, 20)
    values[0] = np.nan
    got = codec.decode(codec.encode(values), len(values), "float32")
    is_sparse = np.count_nonzero(got) < len(values) // 2
    there = (got != 0) & np.isfinite(values) if is_sparse else np.isfinite(values)
    error = np.abs(got - values)[there].max(initial=0) / np.nanmax(np.abs(values))
    drain = DRAIN if codec.keeps_residual else 0
    bound = 1.5 * float(error) + 1e-6
    not_finite = "kept" if np.isnan(got[0]) else "finite" if got[0] else "zero"
    return Promise(error=bound, merge_error=0.0 if is_sparse else bound, sparse=is_sparse, dtypes=dtypes,
                   not_finite=not_finite, rounds_to_drain=drain)  # fmt: skip
