"""What holds for any input: of formats that client and server implement apart, and of a life."""

import pytest

# So that a walk's assertions say what differed.
pytest.register_assert_rewrite("tests.properties.walk", "tests.properties.looking")
