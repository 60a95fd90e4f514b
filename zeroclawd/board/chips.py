"""Finds the GPIO chip of a board's header by its label, because its number moves from kernel to kernel."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from zeroclawd.board.hardware import HardwareError
from zeroclawd.frozen import dataclass

# GPIO_GET_CHIPINFO_IOCTL and struct gpiochip_info (name[32], label[32], lines) of linux/gpio.h
_CHIP_INFO = 0x8044B401
_CHIP_INFO_BYTES = 68

HEADER_LABELS = ("pinctrl-bcm2", "pinctrl-rp1")


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPIO chip: its number in /dev/gpiochipN, its driver's label, and how many lines it has."""

    number: int
    label: str
    lines: int

    @property
    def name(self) -> str:
        """The chip's file name."""
        return f"gpiochip{self.number}"


def list_chips(folder: str = "/dev") -> list[Chip]:
    """Every GPIO chip that this process may open; HardwareError if there are some and it may open none."""
    paths = sorted(Path(folder).glob("gpiochip*"))
    chips, denied = [], []
    for path in paths:
        try:
            chips.append(_ask(path))
        except PermissionError:
            denied.append(path.name)
        except OSError:
            continue
    if denied and not chips:
        raise HardwareError(
            f"{', '.join(denied)} may not be opened",
            hint="put the daemon's user into the group gpio; a unit needs DeviceAllow=char-gpiochip rw",
        )
    return chips


def _ask(path: Path) -> Chip:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = fcntl.ioctl(descriptor, _CHIP_INFO, bytes(_CHIP_INFO_BYTES))
    finally:
        os.close(descriptor)
    label = info[32:64].split(b"\0", 1)[0].decode("utf-8", "replace")
    return Chip(int(path.name.removeprefix("gpiochip")), label, int.from_bytes(info[64:68], "little"))


def choose_chip(chips: Iterable[Chip], wanted: str = "") -> Chip:
    """The header's chip: the one whose label or name is `wanted`, else the one with a Raspberry Pi's label."""
    found = list(chips)
    if wanted:
        name = wanted.removeprefix("/dev/")
        fitting = [chip for chip in found if name in (chip.label, chip.name)]
    else:
        fitting = [chip for chip in found if chip.label.startswith(HEADER_LABELS)]
    if fitting:
        return fitting[0]
    there = ", ".join(f"{chip.name} ({chip.label})" for chip in found) or "none"
    if wanted:
        raise HardwareError(
            f"there is no GPIO chip {wanted!r}; there are: {there}", hint="`gpiodetect` lists the chips"
        )
    raise HardwareError(
        f"there is no GPIO chip of a Raspberry Pi; chips here: {there}",
        hint='name the chip with `chip` in [board], or set `kind = "sim"` there to run without hardware',
    )
