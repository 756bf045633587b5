# SPDX-License-Identifier: Apache-2.0
"""Tasks of the master that copy and move objects between segments."""

from mooncake._api.enums import TaskStatus, TaskType

NO_TASK = -1400
NONE = (0, 0)
STATUS = {"pending": TaskStatus.PENDING, "running": TaskStatus.PROCESSING, "succeeded": TaskStatus.SUCCESS,
          "failed": TaskStatus.FAILED, "canceled": TaskStatus.FAILED}


class QueryTaskResponse:
    """The state of a task."""

    def __init__(self, task_id, kind, status, created_ms, updated_ms, message):
        self.id = task_id
        self.type = TaskType.REPLICA_MOVE if kind == "move" else TaskType.REPLICA_COPY
        self.status = STATUS.get(status, TaskStatus.PROCESSING)
        self.created_at_ms_epoch = created_ms
        self.last_updated_at_ms_epoch = updated_ms
        self.assigned_client = NONE
        self.message = message


class Tasks:
    """The methods of MooncakeDistributedStore for tasks.  An id is a pair of ints."""

    def _start_task(self, move, key, sources, targets):
        if any(isinstance(name, str) and "\0" in name for name in sources + targets):
            return NONE, -600
        got = self._task_create(move, key, sources, targets)
        if got == -101:
            got = -600
        if isinstance(got, int):
            return NONE, got
        return tuple(int(part) for part in got.split("-")), 0

    def create_copy_task(self, key, targets):
        """create_copy_task(key: str, targets: list[str]) -> tuple

        Copy the object to each of these segments.  ((id), 0), or ((0, 0), negative code)."""
        if not targets:
            return NONE, -600
        return self._start_task(False, key, (), tuple(targets))

    def create_move_task(self, key, source, target):
        """create_move_task(key: str, source: str, target: str) -> tuple

        Move the object from one segment to another.  ((id), 0), or ((0, 0), negative code)."""
        if source == target:
            return NONE, -600
        return self._start_task(True, key, (source,), (target,))

    def query_task(self, task_id):
        """query_task(task_id: tuple[int, int]) -> tuple

        (QueryTaskResponse, 0), or (None, -1400) if the task does not exist."""
        first, second = task_id
        got = self._task(f"{int(first)}-{int(second)}")
        if got is None:
            return None, NO_TASK
        if isinstance(got, int):
            return None, got
        return QueryTaskResponse((first, second), *got), 0
