"""Rules of leases on Azure Blob, as values."""

import pytest

from arriero import InvalidInput, LeaseRefused
from arriero.leases.azure_rules import (
    MEANINGS,
    AzureAnswer,
    AzureContainer,
    build_lease_view,
    check_blob_name,
    choose_duration,
    hide_query,
    judge_answer,
    parse_container_url,
    read_credentials,
    read_term,
    write_break,
    write_grant,
)

SHOP = AzureContainer("https://shop.blob.core.windows.net", "shop", "leases")
KEY = "c2VjcmV0LWtleQ=="
SAS = "sv=2025-01-05&sig=secret-signature"

ANSWERS = [
    (409, "LeaseAlreadyPresent", "taken"),
    (409, "LeaseIsBreakingAndCannotBeAcquired", "taken"),
    (409, "LeaseIsBreakingAndCannotBeChanged", "lost"),
    (409, "LeaseIsBrokenAndCannotBeRenewed", "lost"),
    (409, "LeaseAlreadyBroken", "lost"),
    (409, "LeaseIdMismatchWithLeaseOperation", "lost"),
    (409, "LeaseNotPresentWithLeaseOperation", "lost"),
    (409, "LeaseLost", "lost"),
    (412, "LeaseIdMissing", "taken"),
    (412, "LeaseIdMismatchWithBlobOperation", "lost"),
    (412, "LeaseNotPresentWithBlobOperation", "lost"),
    (412, "LeaseLost", "lost"),
    (412, "ConditionNotMet", "changed"),
    (404, "BlobNotFound", "no blob"),
    (404, "ResourceNotFound", "no blob"),
    (404, "ContainerNotFound", "no container"),
    (409, "BlobAlreadyExists", "exists"),
    (409, "ContainerAlreadyExists", "exists"),
    (409, "ContainerBeingDeleted", "unavailable"),
    (409, "AccountBeingCreated", "unavailable"),
    (409, "PublicAccessNotPermitted", "denied"),
    (400, "InvalidAuthenticationInfo", "denied"),
]
OTHER_ANSWERS = [
    (401, "NoAuthenticationInformation", "denied"),
    (403, "AuthenticationFailed", "denied"),
    (403, "", "denied"),
    (408, "", "unavailable"),
    (429, "TooManyRequests", "unavailable"),
    (500, "OperationTimedOut", "unavailable"),
    (503, "ServerBusy", "unavailable"),
    (0, "", "unavailable"),
    (400, "InvalidResourceName", "refused"),
    (404, "", "refused"),
    (409, "BlobImmutableDueToPolicy", "refused"),
    (412, "LeaseAlreadyPresent", "refused"),  # a code belongs to its status
]


@pytest.mark.parametrize(("status", "code", "meaning"), ANSWERS + OTHER_ANSWERS)
def test_each_answer_of_the_service_has_its_meaning(status: int, code: str, meaning: str) -> None:
    assert judge_answer(status, code) is AzureAnswer(meaning)


def test_every_known_answer_has_a_test() -> None:
    assert {(status, code) for status, code, _ in ANSWERS} == set(MEANINGS)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("azure+https://shop.blob.core.windows.net/leases", SHOP),
        ("https://shop.blob.core.windows.net/leases/", SHOP),
        ("azure+https://blobs.shop.example/leases", AzureContainer("https://blobs.shop.example", "", "leases")),
        (
            "azure+http://127.0.0.1:10000/devstoreaccount1/leases",
            AzureContainer("http://127.0.0.1:10000/devstoreaccount1", "devstoreaccount1", "leases"),
        ),
        ("azure+http://[::1]:10000/dev/leases", AzureContainer("http://[::1]:10000/dev", "dev", "leases")),
    ],
)
def test_a_url_names_the_account_and_the_container(url: str, expected: AzureContainer) -> None:
    assert parse_container_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "azure+https://shop.blob.core.windows.net",
        "azure+https://shop.blob.core.windows.net/a/b/c",
        "azure+ftp://shop.blob.core.windows.net/leases",
        "azure:leases",
        "azure+https:///leases",
        "azure+https://shop.blob.core.windows.net:port/leases",
        "azure+https://shop.blob.core.windows.net/Leases",
        "azure+https://shop.blob.core.windows.net/le",
        "azure+https://shop.blob.core.windows.net/a--b",
        "azure+https://shop.blob.core.windows.net/" + "a" * 64,
    ],
)
def test_a_url_that_names_no_container_is_refused_with_the_right_shape(url: str) -> None:
    with pytest.raises(InvalidInput, match="give "):
        parse_container_url(url)


@pytest.mark.parametrize(
    "url",
    [
        f"azure+https://shop.blob.core.windows.net/leases?{SAS}",
        "azure+https://shop:secret-signature@shop.blob.core.windows.net/leases",
        "azure+https://shop.blob.core.windows.net/leases#secret-signature",
        "azure+https://shop:secret-signature@[/leases",
    ],
)
def test_a_url_with_credentials_is_refused_without_showing_them(url: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_container_url(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["orders", "Orders/2026 nightly", "größe", "a.b", "x" * 1024, "/".join("a" * 254)])
def test_a_name_that_azure_takes_is_a_lease_s(name: str) -> None:
    assert check_blob_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 1025,
        "/".join("a" * 255),
        "a\\b",
        "a\nb",
        "a//b",
        "/a",
        "a/",
        ".",
        "a/..",
        "a/../b",
        "a.",
        "a./b",
        "\ud800",
    ],
)
def test_a_name_that_azure_does_not_take_as_it_stands_is_refused(name: str) -> None:
    with pytest.raises(LeaseRefused, match="Azure takes no lease of the name"):
        check_blob_name(name)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AZURE_STORAGE_KEY": KEY}, ("shop", KEY)),
        ({"AZURE_STORAGE_SAS_TOKEN": "?" + SAS}, ("", SAS)),
        ({"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=shop;AccountKey={KEY};EndpointSuffix=x"}, ("shop", KEY)),
        ({"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint=https://x;SharedAccessSignature={SAS}"}, ("", SAS)),
    ],
)
def test_credentials_come_from_the_variables_of_the_azure_cli(
    environment: dict[str, str], expected: tuple[str, str]
) -> None:
    assert read_credentials(environment, SHOP) == expected


def test_on_a_domain_of_your_own_the_connection_string_names_the_account() -> None:
    own = AzureContainer("https://blobs.shop.example", "", "leases")
    text = f"AccountName=shop;AccountKey={KEY}"
    assert read_credentials({"AZURE_STORAGE_CONNECTION_STRING": text}, own) == ("shop", KEY)
    with pytest.raises(LeaseRefused, match="does not name the storage account"):
        read_credentials({"AZURE_STORAGE_KEY": KEY}, own)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"),
        ({"AZURE_STORAGE_KEY": "secret!"}, "is not complete"),
        ({"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=other;AccountKey={KEY}"}, "give those of one"),
        ({"AZURE_STORAGE_CONNECTION_STRING": "secret"}, "copy it again"),
    ],
)
def test_credentials_that_cannot_work_are_refused_without_showing_them(environment: dict[str, str], told: str) -> None:
    with pytest.raises(LeaseRefused, match=told) as raised:
        read_credentials(environment, SHOP)
    assert "secret" not in str(raised.value)
    assert KEY not in str(raised.value)


def test_a_message_shows_no_query_of_a_url() -> None:
    assert hide_query(f"cannot reach https://shop/leases?{SAS} now") == "cannot reach https://shop/leases?*** now"


def test_a_lease_is_asked_for_whole_seconds_and_never_for_less() -> None:
    assert [choose_duration(seconds) for seconds in (15.0, 15.2, None)] == [15, 16, -1]


def test_what_is_no_term_is_refused_rather_than_counted_from_0() -> None:
    assert read_term({}, "here") == 0
    assert read_term({"arriero_term": "41"}, "here") == 41
    for damaged in ("", "-1", "4.5", "²"):
        with pytest.raises(LeaseRefused, match="one above every term that was used"):
            read_term({"arriero_term": damaged}, "here")


def test_a_grant_keeps_the_metadata_of_others_and_clears_the_last_break() -> None:
    broken = write_break({"owner": "ops"}, "Jörg\n", "it hangs: ?")
    view = build_lease_view("orders", broken, "broken", "here")
    assert (view.holder, view.broken_by, view.broken_reason) == ("", "Jörg\n", "it hangs: ?")
    granted = write_grant(broken, "box 1", 7, 15.5)
    view = build_lease_view("orders", granted, "leased", "here")
    assert set(granted) == {"owner", "arriero_term", "arriero_holder", "arriero_duration"}
    assert granted["owner"] == "ops"
    assert (view.holder, view.term, view.duration, view.broken_by, view.broken_reason) == ("box 1", 7, 15.5, "", "")
    assert build_lease_view("orders", write_grant({}, "box 1", 1, None), "leased", "here").duration is None


def test_metadata_stays_below_what_the_service_takes() -> None:
    metadata = write_break(write_grant({}, "x" * 60, 10**18, None), "😀" * 1000, "😀" * 1000)
    assert all(text.isascii() for text in metadata.values())
    assert sum(len(name) + len(text) for name, text in metadata.items()) < 8192


@pytest.mark.parametrize(
    ("state", "holder"), [("leased", "ana"), ("breaking", "ana"), ("available", ""), ("expired", ""), ("broken", "")]
)
def test_a_lease_has_a_holder_in_two_of_its_five_states(state: str, holder: str) -> None:
    view = build_lease_view("orders", write_grant({}, "ana", 3, 15.0), state, "here")
    assert (view.holder, view.term) == (holder, 3)


def test_a_lease_without_a_term_has_a_holder_nevertheless() -> None:
    assert build_lease_view("orders", {}, "leased", "here").holder == "a contender that has written no term yet"
