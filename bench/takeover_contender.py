"""One contender for a lease, for `takeover_leases.py`: it leads until it is killed, and prints when it was elected.

python bench/takeover_contender.py URL NAME DURATION
"""

import asyncio
import sys
import time

from arriero.leases import DistributedMutex, Leadership, open_lease


async def lead(leadership: Leadership) -> None:
    """Say when and under which term; then work for ever."""
    print(f"elected {leadership.term} {time.monotonic()!r}", flush=True)
    await asyncio.Event().wait()


async def main(url: str, name: str, duration: float) -> None:
    """Contend until the process is killed."""
    print("started", flush=True)
    await DistributedMutex(open_lease(url, name), duration=duration).run(lead)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
