"""Scale-out: pieces of work on the workers of a dask.distributed cluster (extra `scale`), in order, a bounded number ahead."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ...errors import FlexmatchError, InputError, UsageError

CONNECT_SECONDS = 10
AHEAD = 2  # pieces sent ahead for each thread of the cluster
START = "start `dask scheduler` and `dask worker ADDRESS`, and give the scheduler's address"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cluster:
    """A connection to a scheduler; what is sent to workers is trusted there as code, so the scheduler must be one's own."""

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address

    @property
    def threads(self) -> int:
        """How many pieces of work run at once now."""
        counts: Mapping[str, int] = self.client.nthreads()
        return max(sum(counts.values()), 1)

    def share(self, thing: Any) -> Any:
        """Send something once to each worker that asks; the result stands for it among the arguments of `map`.

        It is the result of a task, not scattered: a task that is lost with a worker is run again elsewhere.
        """
        with self._worker_errors():
            return self.client.submit(_identity, thing, pure=False)

    def map(self, work: Callable[..., Result], items: Iterable[Item], *shared: Any) -> Iterator[Result]:
        """Yield work(item, *shared) of every item in order; what is still running is cancelled when the caller stops early."""
        running: deque[Any] = deque()
        try:
            for item in items:
                with self._worker_errors():
                    running.append(self.client.submit(work, item, *shared, pure=False))
                if len(running) > AHEAD * self.threads:
                    yield self._result(running.popleft())
            while running:
                yield self._result(running.popleft())
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.client.cancel(list(running))

    def _result(self, future: Any) -> Any:
        with self._worker_errors():
            return future.result()

    @contextlib.contextmanager
    def _worker_errors(self) -> Iterator[None]:
        """Turn what the cluster raises into a refusal; those of the work itself stay as they are."""
        try:
            yield
        except FlexmatchError:
            raise
        except Exception as error:
            sentence = f"a worker failed: {type(error).__name__}: {error}"
            raise InputError("C109", sentence, place=self.address, help="look at the workers' logs; finished samples are kept") from None


def _identity(value: Item) -> Item:
    return value


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler (`tcp://HOST:PORT`); UsageError C109 when none answers."""
    try:
        from distributed import Client
    except ImportError:
        sentence = "a cluster needs the package distributed, which is not installed"
        raise UsageError("C109", sentence, help="install flexmatch[scale]") from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        cause = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError("C109", f"no scheduler answers: {cause}", place=address, help=START) from None
    try:
        if not client.nthreads():
            raise UsageError("C109", "the scheduler has no workers", place=address, help=f"start `dask worker {address}`")
        yield Cluster(client, address)
    finally:
        client.close()
