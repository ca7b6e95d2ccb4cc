"""Addresses to which requests may go: a name is resolved once, what it stands for is checked, and the connection goes there."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from ..errors import Transient

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The special-purpose registries of IANA (RFC 6890), November 2025. They are written out here because ``is_global`` differs between releases
# of Python: before 3.11.9 and 3.12.4 it is true of 192.0.0.192, which answers with the credentials of a machine in one cloud.
NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared, behind the NAT of a provider
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # not of IANA: in Azure, each machine's own platform answers there
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; two of them are anycast services that no web server uses
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
# RFC 4291, 2.5.4: IANA assigns nothing else of IPv6 to the internet.
PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
# Networks whose addresses hold one of IPv4, with the number of bits behind it. The address inside decides.
EMBEDDING_V4 = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)


def is_public(address: Address) -> bool:
    """Returns True for an address of the public internet: not private, loopback, link-local, multicast or reserved."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_V4)
    for network, bits_behind in EMBEDDING_V4:
        if address in network:
            return is_public(ipaddress.IPv4Address(int(address) >> bits_behind & 0xFFFFFFFF))
    return address in PUBLIC_V6 and not any(address in network for network in NOT_PUBLIC_V6)


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
