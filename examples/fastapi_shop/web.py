"""A shop with FastAPI and SQLAlchemy: the order's row and its task stand or fall together.

    SHOP_DATABASE=postgresql://localhost/shop uvicorn web:api

``run.py`` beside it starts a server of its own and is its customer.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from arriero import TaskCompensated, TaskFailed, UnknownTask
from examples.fastapi_shop.shop import DATABASE, fulfil, shop


class Base(DeclarativeBase): ...


class OrderRow(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    pence: Mapped[int]


class NewOrder(BaseModel):
    id: str
    pieces: int
    pence: int


engine = create_async_engine(DATABASE.replace("postgresql://", "postgresql+psycopg://", 1))
sessions = async_sessionmaker(engine)


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with shop.running():  # or `async with shop:` here, and `arriero run` on other hosts
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


async def session() -> AsyncIterator[AsyncSession]:
    """One transaction for each request: committed at its end, rolled back when it raises."""
    async with sessions.begin() as begun:
        yield begun


# scope="function": the commit comes before the answer, so that who is answered can rely on it.
Transaction = Annotated[AsyncSession, Depends(session, scope="function")]


@api.post("/orders", status_code=202)
async def place(new: NewOrder, transaction: Transaction) -> dict[str, str]:
    transaction.add(OrderRow(id=new.id, pence=new.pence))
    task = await shop.submit(fulfil(new.id, new.pieces, new.pence), task_id=new.id, connection=transaction)
    if new.pence > 100_000:
        raise HTTPException(422, "over the limit of a new customer")  # the row and the task are gone
    return {"task": task.id}


@api.get("/orders")
async def listed(transaction: Transaction) -> list[str]:
    connection = await transaction.connection()
    return [row[0] for row in await connection.exec_driver_sql("SELECT id FROM orders ORDER BY id")]


@api.get("/orders/{order_id}")
async def show(order_id: str) -> dict[str, str]:
    try:
        return {"receipt": await shop.task(order_id, fulfil).result(timeout=5)}
    except UnknownTask:
        raise HTTPException(404, "no such order") from None
    except TimeoutError:
        raise HTTPException(202, "under way") from None
    except TaskCompensated as undone:
        raise HTTPException(409, undone.public) from undone
    except TaskFailed as failed:
        raise HTTPException(500, failed.public) from failed
