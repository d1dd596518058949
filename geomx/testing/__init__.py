"""What a plugin author's tests use: a whole cluster in one process."""

from geomx.testing.cluster import LocalCluster, Worker

__all__ = ["LocalCluster", "Worker"]
