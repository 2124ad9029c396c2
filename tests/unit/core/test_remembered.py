"""A property that is worked out once."""

from __future__ import annotations

from costlens.core.remembered import remembered


class Counted:
    """Counts how often its property is worked out."""

    def __init__(self) -> None:
        self.num = 0

    @remembered
    def answer(self) -> int:
        """Return the answer."""
        self.num += 1
        return 42


def test_a_property_is_worked_out_once_for_each_object() -> None:
    """Later accesses find the value in the object; another object has its own."""
    first, second = Counted(), Counted()
    assert (first.answer, first.answer, first.num, second.num) == (42, 42, 1, 0)
    assert second.answer == 42


def test_the_class_keeps_its_words() -> None:
    """Of the class it is itself, with the method's docstring."""
    assert Counted.answer.__doc__ == "Return the answer."
