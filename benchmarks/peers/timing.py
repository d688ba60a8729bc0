"""How the peers' calls are timed."""
import statistics
import time


def median_ms(call, seconds):
    """Median milliseconds of `call` over so many seconds, at least ten calls, after five that do not count."""
    for _ in range(5):
        call()
    end, taken = time.perf_counter() + seconds, []
    while len(taken) < 10 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(taken)
