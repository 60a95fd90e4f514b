"""Chooses the hardware that a config asks for, and drives safe states when no board is left to do it."""

from __future__ import annotations

from collections.abc import Sequence

from zeroclawd.board.hardware import Hardware, HardwareError
from zeroclawd.board.plan import Planned, plan_devices
from zeroclawd.board.worker import Worker
from zeroclawd.config import Config


def open_hardware(config: Config) -> Hardware:
    """The simulation with its devices in place, or the Raspberry Pi.

    `auto` is the Raspberry Pi where its GPIO chip exists, else a HardwareError that says so. No line, bus or port is
    touched yet.
    """
    if config.board.kind == "sim":
        return _simulation(config)
    from zeroclawd.board.pi import PiHardware

    if config.board.kind == "auto":
        from zeroclawd.board.chips import choose_chip, list_chips

        choose_chip(list_chips(), config.board.chip)
    return PiHardware(config.board.chip)


def _simulation(config: Config) -> Hardware:
    from zeroclawd.board.sim import SimHardware

    sim = SimHardware()
    for device in plan_devices(config):
        device.driver.simulate(sim)
    return sim


def drive_safe_states(config: Config, hardware: Hardware | None = None) -> list[str]:
    """Bring every safe state without a daemon, for `ExecStopPost` after a crash; one line for each device.

    It raises no HardwareError: a device that does not follow is a line that says so, and the others still go. Each device
    has `board.timeout` seconds.
    """
    planned = [
        device for device in plan_devices(config) if device.output is not None and device.output.safe is not None
    ]
    if hardware is not None:
        return _drive_all(planned, hardware, config)
    if config.board.kind == "sim":
        return ["the board is simulated: there is nothing to drive"]
    try:
        opened = open_hardware(config)
    except HardwareError as error:
        return [f"no safe state could be driven: {error.text}"]
    try:
        return _drive_all(planned, opened, config)
    finally:
        opened.close()


def _drive_all(planned: Sequence[Planned], hardware: Hardware, config: Config) -> list[str]:
    workers = {device.driver.resource: Worker(device.driver.resource) for device in planned}
    lines = [_drive(device, hardware, workers[device.driver.resource], config.board.timeout) for device in planned]
    for worker in workers.values():
        worker.close()
    return lines


def _drive(device: Planned, hardware: Hardware, worker: Worker, seconds: float) -> str:
    output = device.output
    assert output is not None
    assert output.safe is not None
    safe = output.safe

    def drive() -> str:
        output.open(hardware)
        output.write(safe)
        return output.read().how if output.reads_back() else "sent"

    try:
        return f"{device.name}: {output.word(safe)} ({worker.run_blocking(drive, seconds + output.patience)})"
    except HardwareError as error:
        return f"{device.name}: NOT brought to {output.word(safe)}: {error.text}"
