"""A box office with FastAPI and one SQLite file: the booking's row and its task stand or fall together.

    TICKETS_STORE=sqlite:///tickets.db uvicorn examples.fastapi_sqlite.web:api

``run.py`` beside it is fifty customers at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from fastapi import FastAPI, HTTPException

import arriero
from arriero import TaskCompensated, TaskFailed, UnknownTask
from examples.fastapi_sqlite.tickets import app, book


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with app.running():  # or `async with app:` here, and `arriero run` in a process of its own
        async with arriero.transaction(app.store) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS bookings (id TEXT PRIMARY KEY)")
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/async/bookings/{booking}", status_code=202)
async def place(booking: str) -> dict[str, str]:
    async with arriero.transaction(app.store) as connection:  # waits for its turn; the loop goes on
        connection.execute("INSERT INTO bookings VALUES (?)", (booking,))
        task = await app.submit(book(booking), task_id=booking, connection=connection)
    return {"task": task.id}  # after the block, so after the commit


@api.post("/sync/bookings/{booking}", status_code=202)
def place_in_a_thread(booking: str) -> dict[str, str]:
    with closing(arriero.connect(app.store)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")  # waits for its turn in this thread
        connection.execute("INSERT INTO bookings VALUES (?)", (booking,))
        task = app.sync.submit(book(booking), task_id=booking, connection=connection)
    return {"task": task.id}


@api.get("/bookings/{booking}")
async def show(booking: str) -> dict[str, str]:
    try:
        return {"seat": await app.task(booking, book).result(timeout=30)}
    except UnknownTask:
        raise HTTPException(404, "no such booking") from None
    except TimeoutError:
        raise HTTPException(503, "not decided yet") from None
    except TaskCompensated as undone:
        raise HTTPException(409, undone.public) from undone
    except TaskFailed as failed:
        raise HTTPException(500, failed.public) from failed


@api.get("/bookings")
async def listed() -> list[str]:
    with closing(arriero.connect(app.store)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM bookings")]
