"""Recognition of loopback addresses, to which only this machine can connect."""

from ipaddress import IPv4Address, IPv6Address, ip_address

LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to an address. A name but ``localhost`` may stand for any address."""
    address = parse_address(host)
    return host == LOCALHOST if address is None else address.is_loopback


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; one of version 4 that is written as version 6 is one of version 4. None: it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
