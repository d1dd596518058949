"""Who sees a run: the JSON lines that are always written, and the observer that the config chooses."""

from geomx.tracking.jsonl import JsonLines
from geomx.tracking.observers import Observers, observers

__all__ = ["JsonLines", "Observers", "observers"]
