"""Every error of zeroclawd in one tree, each saying what failed and, to the operator, what to try.

    ZeroclawdError
      ConfigError              a key in the config: file, line, key, reason, hint
      KeyFileError             a key, password or credential cannot be read
      RefusedMessage           something that came in was refused, with a counted reason
      ProviderError            a model endpoint failed
      ChannelError             a channel cannot connect, subscribe or publish
      StoreError               the local database cannot record
        StoreFull              ... because the disk is full or read-only
      ToolError                a tool could not do what was asked; the model reads its text
        DeviceError            ... because of a device
          UnknownDevice        no device has that name
          ValueRefused         the value is not one that the device takes
          LimitRefused         a safety rule of the board said no, whoever asked
          EmergencyStopped     the emergency stop is engaged
          DeviceFailed         bus, port or line failed; nothing is known to have changed
          ReadbackFailed       the hardware does not show what was written

`hint` is for the operator alone. The text of a ToolError is for the model and never names a setting that would relax a
policy.
"""

from __future__ import annotations


class ZeroclawdError(Exception):
    """The root: `str()` is one line that says what failed; `hint` says what an operator may try."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class ConfigError(ZeroclawdError):
    """A config that must not run; `key` is dotted, `file` and `line` are filled in by whoever knows the source."""

    def __init__(self, reason: str, *, key: str = "", file: str = "", line: int = 0, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.reason = reason
        self.key = key
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        key = f"{self.key}: " if self.key else ""
        return f"{place}{key}{self.reason}"


class KeyFileError(ZeroclawdError):
    """A secret that is named but cannot be read, or does not have the right shape."""


class RefusedMessage(ZeroclawdError):
    """An incoming message that is not acted on; `reason` is the counter's name (`retained`, `stale`, `not_utf8`, ...)."""

    def __init__(self, reason: str, text: str, *, command_id: str = "", hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.reason = reason
        self.command_id = command_id


class ProviderError(ZeroclawdError):
    """A model endpoint failed; `retryable` says whether the same request may be sent again."""

    def __init__(self, text: str, *, retryable: bool = False, retry_after: float | None = None, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.retryable = retryable
        self.retry_after = retry_after


class ChannelError(ZeroclawdError):
    """A channel that cannot reach its broker, is refused by it, or is not granted a subscription."""


class StoreError(ZeroclawdError):
    """The local database cannot be read or written."""


class StoreFull(StoreError):
    """The disk is full or read-only: what must be recorded before it may happen does not happen."""


class ToolError(ZeroclawdError):
    """A tool's failure, worded for the model; `output` keeps what the tool had said before it failed."""

    def __init__(self, text: str, *, output: str = "", hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.output = output


class DeviceError(ToolError):
    """A failure that belongs to one device."""

    def __init__(self, device: str, text: str, *, output: str = "", hint: str = "") -> None:
        super().__init__(f"{device}: {text}", output=output, hint=hint)
        self.device = device


class UnknownDevice(DeviceError):
    """No device has this name."""


class ValueRefused(DeviceError):
    """The value is of the wrong type or out of the device's range."""


class LimitRefused(DeviceError):
    """A safety rule (interlock, max_on, min_off, rate) refused; `limit` names it."""

    def __init__(self, device: str, limit: str, text: str) -> None:
        super().__init__(device, text)
        self.limit = limit


class EmergencyStopped(DeviceError):
    """The emergency stop is engaged; no effect starts until an entitled operator releases it."""


class DeviceFailed(DeviceError):
    """A line, bus or port failed; the text names it."""


class ReadbackFailed(DeviceError):
    """What was read back is not what was written, so the state of the device is in doubt."""
