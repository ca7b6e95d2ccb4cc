"""Which addresses are of the public internet: the registries of IANA, whatever the release of Python knows of them."""

import ipaddress
from collections.abc import Iterator

import pytest

from arriero import DefinitionError
from arriero.http import HttpAgent
from arriero.http.agent import EMBEDDING_V4, NOT_PUBLIC_V4, NOT_PUBLIC_V6, Address, is_public

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IANA's registries of special-purpose addresses for IPv4 and IPv6, with their column "Globally Reachable"; None is "N/A".
REGISTRIES: dict[str, bool | None] = {
    "0.0.0.0/8": False,
    "0.0.0.0/32": False,
    "10.0.0.0/8": False,
    "100.64.0.0/10": False,
    "127.0.0.0/8": False,
    "169.254.0.0/16": False,
    "172.16.0.0/12": False,
    "192.0.0.0/24": False,
    "192.0.0.0/29": False,
    "192.0.0.8/32": False,
    "192.0.0.9/32": True,
    "192.0.0.10/32": True,
    "192.0.0.170/32": False,
    "192.0.0.171/32": False,
    "192.0.2.0/24": False,
    "192.31.196.0/24": True,
    "192.52.193.0/24": True,
    "192.88.99.0/24": None,
    "192.168.0.0/16": False,
    "192.175.48.0/24": True,
    "198.18.0.0/15": False,
    "198.51.100.0/24": False,
    "203.0.113.0/24": False,
    "240.0.0.0/4": False,
    "255.255.255.255/32": False,
    "::1/128": False,
    "::/128": False,
    "::ffff:0:0/96": False,
    "64:ff9b::/96": True,
    "64:ff9b:1::/48": False,
    "100::/64": False,
    "100:0:0:1::/64": False,
    "2001::/23": False,
    "2001::/32": None,
    "2001:1::1/128": True,
    "2001:1::2/128": True,
    "2001:1::3/128": True,
    "2001:2::/48": False,
    "2001:3::/32": True,
    "2001:4:112::/48": True,
    "2001:10::/28": None,
    "2001:20::/28": True,
    "2001:30::/28": True,
    "2001:db8::/32": False,
    "2002::/16": None,
    "2620:4f:8000::/48": True,
    "3fff::/20": False,
    "5f00::/16": False,
    "fc00::/7": False,
    "fe80::/10": False,
}
MULTICAST = ("224.0.0.0/4", "ff00::/8")
# Refused although the registries or Python call them reachable: services of protocols, an address of one cloud, and what is not assigned.
STRICTER = [
    *map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20")),
    *map(ipaddress.ip_network, ("::/3", "4000::/2", "8000::/1")),
]


def ends(network: Network) -> Iterator[Address]:
    """The addresses at both ends of a network, and their neighbours outside."""
    for number in (-1, 0, network.num_addresses - 1, network.num_addresses):
        at = int(network.network_address) + number
        if 0 <= at < 2**network.max_prefixlen:
            yield type(network.network_address)(at)


def samples() -> list[Address]:
    """Addresses around all networks that the registries and arriero know, and those inside of the networks that embed them."""
    networks = [*map(ipaddress.ip_network, (*REGISTRIES, *MULTICAST)), *NOT_PUBLIC_V4, *NOT_PUBLIC_V6]
    plain = {address for network in networks for address in ends(network)}
    embedded = {
        ipaddress.IPv6Address(int(network.network_address) + (int(address) << bits))
        for network, bits in EMBEDDING_V4
        for address in plain
        if isinstance(address, ipaddress.IPv4Address)
    }
    return sorted(plain | embedded, key=lambda address: (address.version, int(address)))


def unfold(address: Address) -> Address:
    """The address of IPv4 inside of one of IPv6, else itself; by other means than arriero's."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    packed = address.packed
    if packed[:12] in (bytes(10) + b"\xff\xff", bytes.fromhex("0064ff9b") + bytes(8)):
        return ipaddress.IPv4Address(packed[12:])
    return ipaddress.IPv4Address(packed[2:6]) if packed[:2] == b"\x20\x02" else address


@pytest.mark.parametrize("text", [text for text, is_reachable in REGISTRIES.items() if is_reachable is False])
def test_no_address_that_the_registries_call_unreachable_is_public(text: str) -> None:
    network = ipaddress.ip_network(text)
    inside = [address for address in ends(network) if address in network]
    reachable = [ipaddress.ip_network(other) for other, is_reachable in REGISTRIES.items() if is_reachable]
    if text != "::ffff:0:0/96":  # the address inside decides
        assert not any(
            is_public(one)
            for one in inside
            if not any(one in other for other in reachable if other.version == one.version)
        )


def test_what_is_public_here_is_global_for_python_and_the_other_differences_are_meant() -> None:
    for address in samples():
        inner = unfold(address)
        is_global = inner.is_global and not inner.is_multicast
        if is_public(address):
            assert is_global, address
        elif is_global:
            assert any(inner in network for network in STRICTER if network.version == inner.version), address


def test_the_list_is_the_one_that_was_compared_with_the_registries() -> None:
    refused = {text for text, is_reachable in REGISTRIES.items() if not is_reachable}
    for network in (*NOT_PUBLIC_V4, *NOT_PUBLIC_V6):
        assert str(network) in refused | {"168.63.129.16/32", *MULTICAST}
    assert [is_public(ipaddress.ip_address(text)) for text in ("1.1.1.1", "192.31.196.1", "2606:4700::1111")] == [
        True
    ] * 3
    assert [str(network) for network, _ in EMBEDDING_V4] == ["::ffff:0:0/96", "64:ff9b::/96", "2002::/16"]


@pytest.mark.parametrize(
    "host",
    [
        "192.0.0.192",
        "192.0.0.170",
        "168.63.129.16",
        "169.254.169.254",
        "[::ffff:192.0.0.192]",
        "[64:ff9b::192.0.0.192]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[2001:0:a9fe:a9fe::1]",
        "[::169.254.169.254]",
        "[fd00:ec2::254]",
        "[3fff::1]",
    ],
)
def test_an_agent_at_such_an_address_is_refused_by_every_release_of_python(host: str) -> None:
    with pytest.raises(DefinitionError, match="not of the public internet"):
        HttpAgent("bank", url=f"http://{host}/", secret="whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz")
