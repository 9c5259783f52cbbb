import pytest

from prcut.runtime.lazy import import_lazily


def test_a_name_is_imported_from_its_home() -> None:
    get, list_names = import_lazily("email", {"Message": "message", "Missing": "message"})
    from email.message import Message

    assert get("Message") is Message
    assert list_names() == ["Message", "Missing"]
    with pytest.raises(AttributeError, match="module 'email' has no attribute 'absent'"):
        get("absent")
