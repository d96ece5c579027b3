"""``python -m experiments.latency.networks.emulator NEAR FAR``: carries IP packets between two TUN devices.

NEAR and FAR are descriptors of open TUN devices, one in each network namespace. The emulator delays, loses
or reorders IP packets, so that real TCP reacts: slow start, windows, retransmissions.
"""

from __future__ import annotations

import heapq
import os
import select
import sys
import time
from itertools import count

from experiments.latency.networks.conditions import Conditions, Direction
from experiments.latency.networks.shaping_process import Commands, reply

MAX_PACKET_BYTES = 65_536


class Emulator:
    """Both directions between two devices, and the packets in transit in order of departure."""

    def __init__(self, near: int, far: int) -> None:
        self._other = {near: far, far: near}
        self._directions = {device: Direction(Conditions(), 0) for device in self._other}
        self._packets: list[tuple[float, int, int, bytes]] = []
        self._numbers = count()

    def change(self, conditions: Conditions, seed: int) -> None:
        """Apply conditions to packets that arrive from now on."""
        for number, device in enumerate(self._other):
            self._directions[device] = Direction(
                conditions, 2 * seed + number, last_s=self._directions[device].last_s
            )

    def run(self) -> None:
        """Carry packets until standard input closes."""
        commands = Commands(self.change)
        waiting_for = [0, *self._other]
        while True:
            now_s = time.monotonic()
            while self._packets and self._packets[0][0] <= now_s:
                _, _, device, packet = heapq.heappop(self._packets)
                os.write(device, packet)
            rest_s = max(0.0, self._packets[0][0] - time.monotonic()) if self._packets else None
            readable, _, _ = select.select(waiting_for, [], [], rest_s)
            for descriptor in readable:
                if descriptor == 0:
                    if not commands.read():
                        return
                    continue
                packet = os.read(descriptor, MAX_PACKET_BYTES)
                departure_s = self._directions[descriptor].departure_s(time.monotonic(), len(packet))
                if departure_s is not None:
                    entry = (departure_s, next(self._numbers), self._other[descriptor], packet)
                    heapq.heappush(self._packets, entry)


if __name__ == "__main__":
    emulator = Emulator(int(sys.argv[1]), int(sys.argv[2]))
    reply({"ready": True})
    emulator.run()
