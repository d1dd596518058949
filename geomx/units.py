"""Figures as people read them."""


def size(count: float) -> str:
    """1234567 -> '1.2 MB'"""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
