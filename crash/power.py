"""The plug is pulled: the broker keeps its data on a file system of its own, in an image, and what had not reached the image
when it died is gone.

The processes are stopped, the image is copied as it is, and the next broker starts on the copy. Needs root for `mount`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from crash.broker import Broker, BrokerFault

IMAGE_MIB: Final = 768
BUSY_S: Final = 10.0
OS_WINDOW_S: Final = 1.0  # as the configuration reference states it


class PowerCutBroker(Broker):
    def __init__(self, folder: Path, settings: tuple[str, ...], module: str = "millstream") -> None:
        super().__init__(folder, settings, module)
        self.cuts = 0
        self._image = folder / "disk-0.img"
        self._mount = folder / "mount"
        self._mount.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_MIB * 1024 * 1024)
        call("mkfs.ext4", "-q", "-F", str(self._image))
        self._attach()

    @property
    def data_dir(self) -> Path:
        return self._mount / "data"

    def kill(self) -> None:
        if self.poll() is not None or self._process is None:
            return
        pid = self.pid()
        for process in (pid, *children_of(pid)):
            os.kill(process, signal.SIGSTOP)
        self.cuts += 1
        copy = self._folder / f"disk-{self.cuts}.img"
        call("cp", "--sparse=always", str(self._image), str(copy))
        for process in (*children_of(pid), pid):
            os.kill(process, signal.SIGKILL)
        self._process.wait()
        self._detach()
        self._image.unlink()
        self._image = copy
        # the journal of the file system is played back, as a machine does when it comes up again
        done = subprocess.run(["e2fsck", "-fp", str(copy)], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise BrokerFault(f"the file system itself did not survive: {done.stdout}{done.stderr}")
        self._attach()

    def close(self) -> None:
        super().kill()
        self._detach()

    def _attach(self) -> None:
        call("mount", "-o", "loop", str(self._image), str(self._mount))

    def _detach(self) -> None:
        deadline = time.monotonic() + BUSY_S
        while subprocess.run(["umount", str(self._mount)], capture_output=True, check=False).returncode != 0:
            if not os.path.ismount(self._mount):
                return
            if time.monotonic() > deadline:
                raise BrokerFault(f"{self._mount} stays busy")
            time.sleep(0.02)  # a killed process lets go of its files when the kernel gets to it


def children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(child) for child in text.split()]


def find_obstacle() -> str:
    """Why it cannot be done here; empty: it can."""
    for tool in ("mkfs.ext4", "e2fsck", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (apt-get install e2fsprogs mount)"
    return "" if os.geteuid() == 0 else "it takes root to mount an image"


def find_window_s(settings: tuple[str, ...]) -> float:
    """How much of what was confirmed the broker may lose with the power."""
    durability = [text.partition("=")[2] for text in settings if text.startswith("storage.durability=")]
    return OS_WINDOW_S if durability[-1:] == ["os"] else 0.0


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerFault(f"{' '.join(command)}: {done.stderr.strip()}")
