"""The unit and its companions, judged by systemd's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zeroclawd import assets
from zeroclawd.config import Config

SHIPPED = assets.folder("systemd")
UNIT = SHIPPED / "zeroclawd.service"
# Tenths. The rest is what the daemon is for (network, devices) and what lets a sandbox take rights away from its tools.
EXPOSURE = 30
NEEDED_UNITS = ("sysinit.target", "basic.target", "shutdown.target", "network.target", "multi-user.target")
# Kernel documentation, admin-guide/devices.txt; gpiochip has no fixed number.
NUMBERS = {"i2c": "89", "spidev": "153", "ttyACM": "166", "ttyUSB": "188"}
NAMES = ("gpiochip", "ttyS", "ttyAMA")


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is missing. On Debian: sudo apt-get install systemd"
    return found


def output_of(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system with the unit, the units that it names, and something to execute."""
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(UNIT, units)
    for name in NEEDED_UNITS:
        (units / name).write_text("[Unit]\nDefaultDependencies=no\n", "utf-8")
    for path in ("opt/zeroclawd/bin/zeroclawd", "bin/kill"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / path)
    return tmp_path


def verify(root: Path) -> list[str]:
    """What systemd-analyze finds, but for the two keys that only newer ones know."""
    analyze = program("systemd-analyze")
    code, said = output_of(analyze, "verify", "--man=no", f"--root={root}", "zeroclawd.service")
    version = int(output_of(analyze, "--version")[1].split()[1].split(".")[0].split("~")[0])
    newer = ("'RestartSteps'", "'RestartMaxDelaySec'") if version < 254 else ()
    found = [line for line in said.splitlines() if not any(key in line for key in newer)]
    return found + ([f"exit code {code}"] if code else [])


def test_systemd_finds_nothing_wrong_with_the_unit(root: Path) -> None:
    assert verify(root) == []


def test_a_misspelt_key_would_be_found(root: Path) -> None:
    unit = root / "etc/systemd/system/zeroclawd.service"
    unit.write_text(unit.read_text("utf-8").replace("WatchdogSec", "WachdogSec"), "utf-8")
    assert any("WachdogSec" in line for line in verify(root))


def test_the_exposure_stays_low() -> None:
    command = ("security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", str(UNIT))
    code, said = output_of(program("systemd-analyze"), *command)
    assert code == 0, said


def test_the_device_nodes_stay_open_and_all_others_closed() -> None:
    unit = settings()
    allowed = {line.removesuffix(" rw") for line in unit["DeviceAllow"]}
    assert allowed == {f"char-{name}" for name in (*NAMES, *NUMBERS.values())}
    assert unit["DevicePolicy"] == ["closed"]
    # Each of these would hide the nodes, or the files by which gpiozero tells the board.
    assert {"PrivateDevices", "ProcSubset", "RootDirectory", "RootImage", "DynamicUser"}.isdisjoint(unit)


def test_a_sandbox_of_namespaces_stays_possible() -> None:
    unit = settings()
    assert {"user", "mnt", "pid", "net", "ipc", "uts"} <= set(unit["RestrictNamespaces"][0].split())
    assert "mount umount2 pivot_root capset" in unit["SystemCallFilter"]
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0]


def test_a_board_without_network_or_clock_still_starts() -> None:
    unit = settings()
    waits = " ".join(value for key in ("After", "Wants", "Requires", "BindsTo") for value in unit.get(key, ()))
    assert "online" not in waits
    assert "time-sync" not in waits
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]


def test_the_paths_are_those_of_the_config() -> None:
    unit = settings()
    assert f"/var/lib/{unit['StateDirectory'][0]}" == Config().agent.state_dir
    assert unit["WorkingDirectory"] == [f"%t/{unit['RuntimeDirectory'][0]}"]


@pytest.mark.parametrize("key", ["ExecStart", "ExecStopPost"])
def test_the_commands_of_the_unit_are_commands_of_the_daemon(key: str, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[agent]\nstate_dir = "{tmp_path}/state"\n[board]\nkind = "nonsense"\n', "utf-8")
    (line,) = settings()[key]
    arguments = line.removeprefix("-").replace("/etc/zeroclawd/config.toml", str(config)).split()[1:]
    code, said = output_of(sys.executable, "-m", "zeroclawd", *arguments)
    # The config is read and refused by name: so the command line itself was understood.
    assert (code, "board.kind" in said) == (2, True), said


def test_the_user_and_every_group_of_the_unit_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    conf = str(SHIPPED / "sysusers.d" / "zeroclawd.conf")
    code, said = output_of(program("systemd-sysusers"), "--dry-run", f"--root={tmp_path}", conf)
    assert code == 0, said
    unit = settings()
    assert f"Creating user '{unit['User'][0]}'" in said
    for group in (unit["Group"][0], *unit["SupplementaryGroups"][0].split()):
        assert f"Creating group '{group}'" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_config_and_credentials_belong_to_whom_they_should(tmp_path: Path) -> None:
    (tmp_path / "etc" / "zeroclawd").mkdir(parents=True)
    (tmp_path / "etc" / "zeroclawd" / "config.toml").write_text("", "utf-8")
    users, files = str(SHIPPED / "sysusers.d" / "zeroclawd.conf"), str(SHIPPED / "tmpfiles.d" / "zeroclawd.conf")
    code, said = output_of(program("systemd-sysusers"), f"--root={tmp_path}", users)
    assert code == 0, said
    code, said = output_of(program("systemd-tmpfiles"), "--create", f"--root={tmp_path}", files)
    assert code == 0, said
    entry = next(line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("zeroclawd:"))
    group = int(entry.split(":")[3])
    for path, mode, owner in (("", 0o750, group), ("config.toml", 0o640, group), ("credentials", 0o700, 0)):
        stat = (tmp_path / "etc" / "zeroclawd" / path).stat()
        assert (stat.st_mode & 0o777, stat.st_uid, stat.st_gid) == (mode, 0, owner), path
    assert f"{settings()['ConfigurationDirectoryMode'][0]}" == "0750"
