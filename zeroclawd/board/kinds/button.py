"""A push button: a contact that is pressed."""

from __future__ import annotations

from zeroclawd.board.kinds.contact import Contact


class Button(Contact):
    """Pressed or not, told by itself when it changes."""

    word = "pressed"


KIND = Button
