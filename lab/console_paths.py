"""The pages of the console, each with a path on the shop of ``lab/console_shop.py``."""

from arriero.server.application import ApiServer
from arriero.server.routing import GatedRoute

# By the template of the path. A page without parameters is itself; what is not here is no page that an operator opens by a link.
SUBJECTS = {
    "/tasks/{task_id}": "/tasks/order-4711",
    "/tasks/{task_id}/steps": "/tasks/order-4711/steps",
    "/tasks/{task_id}/steps/{ordinal}": "/tasks/order-4711/steps/1",
    "/tasks/{task_id}/children": "/tasks/order-4711/children",
    "/tasks/{task_id}/edit": "/tasks/order-4711/edit",
    "/tasks/{task_id}/signals": "/tasks/order-4711/signals",
    "/tasks/{task_id}/history": "/tasks/order-4711/history",
    "/convoys/{key}": "/convoys/customer-7",
    "/agents/{agent}": "/agents/courier",
    "/schedules/{name}": "/schedules/nightly-books",
    "/workflows/{workflow}": "/workflows/fulfil",
    "/act/{operation}/{subject}": "/act/resubmit_task/order-4711",
    "/act/{operation}": "/act/create_token",
    "/bulk/{verb}": "/bulk/resubmit?state=held&workflow=fulfil",
}
MORE = (
    "/tasks?state=held",
    "/tasks?state=pending",
    "/tasks?workflow=fulfil&order=oldest",
    "/tasks?code=card_expired",
    "/tasks?text=carrier",
    "/tasks?tag=channel%3Dshop",
    "/tasks/refund-31",
    "/alerts?state=all&order=oldest",
    "/ledgers?state=all",
)
WITHOUT_DATA = (
    "/static/{edition}/{name}",
    "/live",
    "/live/tasks/{task_id}",
    "/tasks/{task_id}/payloads/{ordinal}/{name}",  # a file
    "/open",  # it leads to a task
    "/tasks/{task_id}/answer",  # its query names a step
    "/tasks/{task_id}/signals/{name}",  # no task of the shop waits for one
    "/inbox/{number}",  # which differs from shop to shop; the page asks what the inbox asks, of one question
)


def list_console_paths(server: ApiServer) -> list[str]:
    """List a path of each page that is opened by GET, so that a page which is added is looked at, too."""
    operations = [route.operation for route in server.routes if isinstance(route, GatedRoute)]
    templates = [one.path for one in operations if one.is_page and one.method == "GET" and one.path not in WITHOUT_DATA]
    unknown = [path for path in templates if "{" in path and path not in SUBJECTS]
    assert not unknown, f"name a path for these pages in lab/console_paths.py: {unknown}"
    return [SUBJECTS.get(path, path) for path in templates] + list(MORE)
