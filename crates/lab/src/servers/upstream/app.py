"""The application of weir's lab behind gunicorn (WSGI) and uvicorn (ASGI). A path says what its
request takes: /.weir/work/MEAN_US/LAW/BURN_US/PATH, as of `weir serve --bench-endpoints`. LAW may
have a seed, LAW:SEED."""

import asyncio
import fcntl
import functools
import hashlib
import itertools
import math
import os
import random
import statistics
import time

BODY = b"x" * 1024


def work(steps):
    """Does a fixed amount of work, as a request is: not a time on a clock that stands still or
    runs on while others have the processor."""
    if steps > 0:
        hashlib.pbkdf2_hmac("sha256", b"weir", b"lab", steps)


def steps_per_us():
    """Returns the best of several short runs: the one that was disturbed least."""

    def run():
        began = time.thread_time_ns()
        work(1000)
        return 1000 * 1000 / max(time.thread_time_ns() - began, 1)

    return max(run() for _ in range(20))


STEPS_PER_US = steps_per_us()
STRATA = 64
NORMAL = statistics.NormalDist()


@functools.cache
def worker_number():
    """Returns the lowest number that no other worker has. Its lock ends with the worker."""
    for number in itertools.count():
        file = os.open(f"worker-{number}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
        except BlockingIOError:
            os.close(file)


@functools.cache
def shares(seed):
    """Returns the random numbers between 0 and 1 of this worker from a seed, without end: of each 64
    in a row one is in each 64th. Without a seed, those of the process, each drawn alone."""
    own = random.Random(f"{seed}:{worker_number()}" if seed else os.urandom(16))
    while True:
        parts = list(range(STRATA)) if seed else [0]
        own.shuffle(parts)
        for part in parts:
            yield (part + (own.getrandbits(32) + 0.5) / 2**32) / len(parts)


def factor(law, seed):
    """Draws a multiple of the mean."""
    if law == "fixed":
        return 1.0
    share = next(shares(seed))
    if law == "exponential":
        return -math.log1p(-share)
    variance = math.log(10)
    return math.exp(math.sqrt(variance) * NORMAL.inv_cdf(share) - variance / 2)


def service(path):
    """Returns the wait in seconds and the steps of work that a request takes."""
    mean_us, law, burn_us = path.split("/")[3:6]
    law, _, seed = law.partition(":")
    drawn = factor(law, seed)
    wait_s = (int(mean_us) - int(burn_us)) * drawn / 1e6
    return wait_s, int(int(burn_us) * drawn * STEPS_PER_US)


def wsgi(environ, start_response):
    wait_s, steps = service(environ["PATH_INFO"])
    time.sleep(wait_s)
    work(steps)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            event = await receive()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return
    wait_s, steps = service(scope["path"])
    await asyncio.sleep(wait_s)
    work(steps)
    fields = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": BODY})


print("weir lab: a worker is ready", flush=True)
