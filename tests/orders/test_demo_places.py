"""Where a demonstration keeps its tasks: what is refused, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.orders.places import UnusablePlace, new_place, place_of


def test_another_kind_of_store_is_refused_without_showing_it(tmp_path: Path) -> None:
    for url in ("memory://", "mysql://me:secret@here/shop", "postgresql+psycopg://me:secret@here/shop"):
        with pytest.raises(UnusablePlace, match="in a file, sqlite:///PATH, or on PostgreSQL") as refused:
            new_place(url, tmp_path)
        assert "secret" not in str(refused.value)


def test_a_file_that_is_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "precious.db"
    file.write_text("precious")
    with (
        pytest.raises(UnusablePlace, match="precious.db exists"),
        new_place(f"sqlite:///{file}", tmp_path).made(keep=False),
    ):
        pass
    assert file.read_text() == "precious"


def test_each_demonstration_on_a_server_has_a_schema_of_its_own_unless_one_is_named(tmp_path: Path) -> None:
    url = "postgresql://me:secret@here/shop"
    first, second = (new_place(url, tmp_path).tables["task"] for _ in range(2))
    assert first.startswith("demo_")
    assert first != second
    assert new_place(f"{url}?sslmode=require&schema=mine", tmp_path).tables["task"] == "mine.task"


def test_the_shops_table_is_not_among_the_tables_of_the_store() -> None:
    assert place_of("postgresql://here/shop").tables["shop_order"] == "arriero_shop.shop_order"


def test_what_is_told_of_a_server_holds_no_password(tmp_path: Path) -> None:
    place = new_place("postgresql://me:secret@here/shop", tmp_path)
    assert place.announcement is not None
    assert "me:***@here/shop?schema=demo_" in place.announcement
    assert "secret" not in place.announcement


@pytest.mark.parametrize("url", ["postgresql://[::1/shop", "postgresql://here/shop?schema=Not%20A%20Name"])
def test_a_url_that_cannot_be_read_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UnusablePlace):
        new_place(url, tmp_path)
