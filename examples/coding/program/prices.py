"""Prices of a small shop, in cents."""


def total(items: list[tuple[str, int, int]], discount_percent: int = 0) -> int:
    """The sum of (name, cents, count), less the discount, to the cent."""
    whole = sum(cents for _, cents, _ in items)
    return whole - whole * discount_percent // 100


def shipping(cents: int) -> int:
    """4.90 below 50.00, nothing from there on."""
    return 0 if cents > 5000 else 490
