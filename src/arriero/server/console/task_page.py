"""One task: how it stands and why, what may be done with it, its steps and its history."""

from ..calls import Call
from ..parameters import TaskId, write_id
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

EVENTS_SHOWN = 100


@page("/tasks/{task_id}", Needs(Scope.READ), "A task: its state, its steps, its history, and the verbs that it allows.")
async def show_task_page(call: Call, task_id: TaskId) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    explanation = await ask(call, "explain_task", task_id=task_id)
    history = await ask(call, "show_history", task_id=task_id, limit=EVENTS_SHOWN)
    versions = await call.session.store.load_versions([task.no])
    context = {
        "task": task,
        "explanation": explanation,
        "history": history,
        "may_operate": may_ask(call, "resubmit_task"),
        "version": versions.get(task.no, ""),
    }
    return Page("task.html", task.id, context, live=f"/live/tasks/{write_id(task.id)}")
