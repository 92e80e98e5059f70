"""Parameters by name become numbers in the order of their table."""

import pytest

from relayer.database.numbering import number_parameters


def test_names_are_numbered_in_the_order_of_the_table() -> None:
    statement = "INSERT INTO t SELECT :b::int, x FROM unnest(:a::bytea[], :b) AS r (x)"
    assert number_parameters(statement, ["a", "b"]) == (
        "INSERT INTO t SELECT $2::int, x FROM unnest($1::bytea[], $2) AS r (x)"
    )


def test_casts_and_slices_are_no_names() -> None:
    statement = "SELECT (:tokens::bigint[])[low:high], 'at :noon', x::text"
    with pytest.raises(ValueError, match="noon"):
        number_parameters(statement, ["tokens"])
    assert number_parameters(statement.replace(":noon", "noon"), ["tokens"]) == (
        "SELECT ($1::bigint[])[low:high], 'at noon', x::text"
    )


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "B"]])
def test_statement_and_table_have_the_same_names(names: list[str]) -> None:
    with pytest.raises(ValueError, match="parameters that only"):
        number_parameters("SELECT :a, :b", names)
