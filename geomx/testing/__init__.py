"""What a plugin author's tests use: a whole cluster in one process. `geomx.testing.codec_suite` has the tests that
every codec inherits; it needs pytest."""

from geomx.testing.cluster import LocalCluster, Worker

__all__ = ["LocalCluster", "Worker"]
