"""Addresses to which requests may go: a name is resolved once, what it stands for is checked, and the connection goes there."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from ..errors import Transient

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses inside of IPv6
# RFC 4291, 2.5.4: IANA gives nothing else of IPv6 out to the internet.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """Returns True for an address of the public internet: not private, loopback, link-local, multicast or reserved."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:  # is_global is true of site-local addresses, and of ::127.0.0.1
            return False
    return address.is_global and not address.is_multicast


async def resolve_host(host: str, port: int) -> list[Address]:
    """Resolve a name, in the order of preference of this machine. Raises Transient."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Transient(f"the name {host} cannot be resolved: {error}", code="unreachable") from error
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def check_addresses(host: str, addresses: Sequence[Address], *, allow_private: bool) -> list[str]:
    """Return the addresses to connect to, the best first. Raises Transient - there is none to which requests may go.

    One address that is not public refuses the name as a whole: who could put it there could put another one first.
    """
    refused = [] if allow_private else [str(one) for one in addresses if not is_public(one)]
    if refused:
        raise Transient(
            f"the name {host} stands for {refused[0]}, which is not an address of the public internet; if that is meant,"
            " declare the Agent with allow_private=True",
            code="address_refused",
        )
    if not addresses:
        raise Transient(f"the name {host} stands for no address", code="unreachable")
    return [str(one) for one in addresses]
