"""A dask.distributed cluster (extra `scale`): tasks on its workers, results in order, a bounded number ahead."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import FlexmatchError, InputError, UsageError

CONNECT_SECONDS = 10
AHEAD = 2  # pieces sent ahead for each thread of the cluster
START = "start `dask scheduler` and `dask worker ADDRESS`, and give the scheduler's address"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cluster:
    """A connection to a scheduler, which must be trusted: workers execute as code what is sent to them."""

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address

    @property
    def threads(self) -> int:
        """The number of tasks that run in parallel now."""
        counts: Mapping[str, int] = self.client.nthreads()
        return max(sum(counts.values()), 1)

    def share(self, value: Any) -> Any:
        """Send a value once to each worker that needs it; the result stands for it among the arguments of `map`.

        It is the result of a task, not scattered: a task that is lost with a worker is run again elsewhere.
        """
        with self._worker_errors():
            return self.client.submit(_identity, value, pure=False)

    def map(self, work: Callable[..., Result], items: Iterable[Item], *shared: Any) -> Iterator[Result]:
        """Yield work(item, *shared) of every item in order; tasks that still run are cancelled when the caller stops early.

        Raises:
            InputError: C109, a worker failed; errors of the work itself pass through.
        """
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
        """Turn errors of the cluster into an InputError; those of the work itself pass through."""
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
def connect(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler (`tcp://HOST:PORT`), and close the connection afterwards.

    Raises:
        UsageError: C109, dask.distributed is not installed, no scheduler answers, or it has no workers.
    """
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
