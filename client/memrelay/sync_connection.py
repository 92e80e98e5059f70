"""A connection to a relayer that blocks: it carries out operations one after the other.

It does not own any operation (`operations/`), or the request of a step (`client.py`). Who needs few
operations runs them here: to import them all (`sync_client.py`) takes a third of a short command.
"""

import time
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from memrelay.client import Client, Options
from memrelay.config import certificates_for, explain_connection_settings
from memrelay.deadline import Deadline
from memrelay.errors import MemrelayError
from memrelay.exchange import Each, Keep, Operation, Sleep, Step
from memrelay.session import Session
from memrelay.transport import httpx, refuse_cookies, socket_transport

T = TypeVar("T")


class SyncConnection(Client):
    """A connection of one identity; use it in `with`, or call `close`. One per thread."""

    def __init__(
        self, *, transport: httpx.BaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        with explain_connection_settings():
            self._http = httpx.Client(
                transport=transport or socket_transport(self._socket),
                verify=certificates_for(self._url),
                trust_env=self._is_proxied(),
            )
        refuse_cookies(self._http)
        self._deadline = Deadline(self._session.monotonic)
        self._deadline.watch(self._http)

    @property
    def session(self) -> Session:
        """The session that operations are made for."""
        return self._session

    def close(self) -> None:
        """Save what was seen and close the connections."""
        try:
            self._session.save()
        finally:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation and return its result."""
        reply: Any = None
        failure: Exception | None = None
        try:
            while True:
                step = operation.send(reply) if failure is None else operation.throw(failure)
                reply, failure = None, None
                try:
                    reply = self._perform(step)
                except (httpx.HTTPError, MemrelayError) as error:
                    failure = error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            operation.close()

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Keep):
            return step.work()
        if isinstance(step, Each):
            return [self.run(operation) for operation in step.operations]
        return self._deadline.send(
            self._http,
            self._request(step),
            timeout_s=step.timeout_s,
            bytes_max=step.answer_bytes_max,
        )
