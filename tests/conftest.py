"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Wall time on a shared machine says nothing about the code.
settings.register_profile("zeroclawd", deadline=None)
settings.load_profile("zeroclawd")
