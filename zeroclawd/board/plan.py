"""Makes drivers and limits of the config's devices without touching hardware, and refuses what cannot work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zeroclawd.board.driver import Driver, InputDriver, OutputDriver, check_pin, read_options
from zeroclawd.board.interlock import RuleError, parse
from zeroclawd.board.kinds import driver_of
from zeroclawd.board.safety import Limits
from zeroclawd.config import Config, DeviceConfig
from zeroclawd.errors import ConfigError
from zeroclawd.frozen import dataclass

_SWITCHED_KEYS = ("safe_state", "max_on", "min_off", "min_interval", "interlocks")


@dataclass(frozen=True, slots=True)
class Planned:
    """A device that could be opened."""

    name: str
    config: DeviceConfig
    driver: Driver
    limits: Limits

    @property
    def output(self) -> OutputDriver | None:
        """The driver, if values can be written to it."""
        return self.driver if isinstance(self.driver, OutputDriver) and self.driver.takes else None


def plan_devices(config: Config) -> tuple[Planned, ...]:
    """Every device in the order of the config; ConfigError has the key `devices.<name>.<key>`."""
    planned = tuple(_plan(name, device) for name, device in config.devices.items())
    _refuse_shared_claims(config, planned)
    for device in planned:
        _check_interlocks(device, planned)
    return planned


def describe(config: Config, planned: Sequence[Planned]) -> Iterator[str]:
    """The plan in one line for each device."""
    yield f"board: {config.board.kind}"
    if config.board.estop_pin is not None:
        level = "low" if config.board.estop_active_low else "high"
        yield f"emergency stop: engaged while pin {config.board.estop_pin} is {level}"
    for device in planned:
        own = sorted(claim for claim in device.driver.claims() if "(" not in claim)
        parts = [f"{device.config.kind} on {', '.join(own) or device.driver.resource}"]
        parts += limits_in_words(device)
        yield f"{device.name}: {'; '.join(parts)}"


def limits_in_words(device: Planned) -> tuple[str, ...]:
    """The safe state and the limits of a device; empty for one that only measures."""
    if device.output is None or device.output.safe is None:
        return device.limits.words()
    return (f"safe state {device.output.word(device.output.safe)}", *device.limits.words())


def _plan(name: str, config: DeviceConfig) -> Planned:
    place = f"devices.{name}"
    try:
        kind = driver_of(config.kind)
        options = read_options(kind.Options, config.options)
        driver = kind(options, config.safe_state)
        planned = Planned(name, config, driver, _limits(config))
        _check_switched(planned)
        return planned
    except ConfigError as error:
        raise ConfigError(error.reason, key=f"{place}.{error.key}" if error.key else place, hint=error.hint) from None
    except ValueError as error:
        raise ConfigError(str(error), key=f"{place}.safe_state") from None


def _limits(config: DeviceConfig) -> Limits:
    try:
        rules = tuple(parse(text) for text in config.interlocks)
    except RuleError as error:
        raise ConfigError(str(error), key="interlocks") from None
    return Limits(config.max_on, config.min_off, config.min_interval, rules)


def _check_switched(device: Planned) -> None:
    """Refuse limits that nothing could keep: of a sensor, or of an output whose safe state is no way out."""
    config, output = device.config, device.output
    for key in _SWITCHED_KEYS:
        value = getattr(config, key)
        if value is None or value == []:
            continue
        if output is None:
            raise ConfigError(f"{_a(config.kind)} is not switched here, so this has no meaning", key=key)
        if key in ("max_on", "min_off", "interlocks") and output.safe is None:
            raise ConfigError("needs a safe_state to go to", key=key)
        if key in ("max_on", "interlocks") and output.safe is not None and output.active(output.safe):
            raise ConfigError("could not be kept, because the safe state is on", key=key)
    if config.max_on is not None and config.max_on <= 0:
        raise ConfigError("must be more than 0", key="max_on")


def _refuse_shared_claims(config: Config, planned: Sequence[Planned]) -> None:
    owners: dict[str, str] = {}
    if config.board.estop_pin is not None:
        try:
            owners[f"pin {check_pin(config.board.estop_pin, 'board.estop_pin')}"] = "the emergency stop"
        except ConfigError as error:
            raise ConfigError(error.reason, key=error.key, hint=error.hint) from None
    for device in planned:
        for claim in sorted(device.driver.claims()):
            thing, _, bus = claim.partition(" (")
            owner = owners.setdefault(thing, bus.rstrip(")") or device.name)
            if owner not in (device.name, bus.rstrip(")")):
                raise ConfigError(f"{thing} belongs to {owner} already", key=f"devices.{device.name}")


def _check_interlocks(device: Planned, planned: Sequence[Planned]) -> None:
    others = {other.name: other for other in planned}
    key = f"devices.{device.name}.interlocks"
    for rule in device.limits.interlocks:
        for name in rule.names:
            if name.device not in others:
                raise ConfigError(f"{rule.text!r}: there is no device {name.device!r}", key=key)
            if name.device == device.name:
                raise ConfigError(f"{rule.text!r}: a device cannot be its own interlock", key=key)
            known = others[name.device].driver.units
            if name.value not in known:
                shown = ", ".join(f"{name.device}.{value}" for value in known)
                raise ConfigError(f"{rule.text!r}: there is no {name.device}.{name.value}; there is {shown}", key=key)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def tells_by_itself(device: Planned) -> bool:
    """Whether the state of a device is known without asking: a contact tells, and an output was set by us."""
    return isinstance(device.driver, InputDriver) or device.output is not None
