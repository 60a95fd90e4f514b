"""The MQTT channel and its approval backchannel."""

from __future__ import annotations

import importlib
import sys
import types
import urllib
from typing import Any


def _stand_in(name: str) -> None:
    """Put a module of this name in place that becomes the real one when something of it is used."""

    def load(attribute: str) -> Any:
        if sys.modules.get(name) is placeholder:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    placeholder = types.ModuleType(name)
    placeholder.__dict__["__getattr__"] = load
    sys.modules[name] = placeholder
    setattr(urllib, name.rpartition(".")[2], placeholder)


# paho imports it for web proxies alone, and it brings an HTTP client and a mail parser: 2 MB that a board would never use.
if "urllib.request" not in sys.modules:
    _stand_in("urllib.request")
