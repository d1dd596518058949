"""What TCP's congestion control makes of a path that loses packets."""

from pathlib import Path

from geomx.wan.overhead import SEGMENT

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
BY_LOSS = ("reno", "cubic")  # take any loss for a full queue; cubic on such short paths grows as reno does


def default_congestion() -> str:
    """The kernel's, '' where it doesn't say."""
    try:
        return DEFAULT.read_text().strip()
    except OSError:
        return ""


def stream_rate(congestion: str, loss: float, burst: float, round_trip_s: float) -> float:
    """Payload bytes per second of one stream in the long run, however fast its links are; 0: loss doesn't limit it.

    Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm" (1997): a window of
    sqrt(3 / 2p) segments each round trip. p counts events: a burst of lost packets halves the window once.
    """
    if congestion not in BY_LOSS or not loss or not round_trip_s:
        return 0.0
    events = loss / max(burst, 1.0)
    return float(SEGMENT / round_trip_s * (1.5 / events) ** 0.5)
